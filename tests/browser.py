"""A real browser for tests: headless Chromium, driven by the DevTools protocol over a pipe."""

from __future__ import annotations

import base64
import fcntl
import json
import os
import select
import subprocess
import time
from pathlib import Path
from typing import Any

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
SECONDS = 60.0
"""How long an answer of the browser may take on a busy machine."""

PHONE = (360, 740)
DESKTOP = (1280, 900)


class Browser:
    """A headless Chromium without a network, and one page in it."""

    def __init__(self, program: str, profile: Path) -> None:
        ours, theirs = os.pipe(), os.pipe()
        # above the numbers 3 and 4 that the browser reads from and writes to
        taken, given = (fcntl.fcntl(end, fcntl.F_DUPFD, 20) for end in (ours[0], theirs[1]))
        options = (
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--no-first-run",
        )
        switches = (
            *options,
            "--remote-debugging-pipe",
            "--disable-background-networking",
            f"--user-data-dir={profile}",
        )
        self.process = subprocess.Popen(
            ["bash", "-c", f'exec "$@" 3<&{taken} 4>&{given}', "bash", program, *switches, "about:blank"],
            pass_fds=(taken, given),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for end in (ours[0], theirs[1], taken, given):
            os.close(end)
        self.writing, self.reading = ours[1], theirs[0]
        self.left, self.number, self.session = b"", 0, ""
        self.events: list[dict[str, Any]] = []
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for part in ("Page", "Runtime", "Log", "Network", "Accessibility"):
            self.ask(f"{part}.enable")

    def ask(self, method: str, **parameters: Any) -> Any:
        """Send a command and return its result; events that come before it are kept."""
        self.number += 1
        message: dict[str, Any] = {"id": self.number, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.writing, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self.number:
                assert "error" not in answer, answer["error"]
                return answer["result"]
            self.events.append(answer)

    def _next(self) -> dict[str, Any]:
        end = time.monotonic() + SECONDS
        while b"\0" not in self.left:
            ready, _, _ = select.select([self.reading], [], [], max(0.0, end - time.monotonic()))
            assert ready, "the browser does not answer"
            got = os.read(self.reading, 1 << 20)
            assert got, "the browser has ended"
            self.left += got
        message, _, self.left = self.left.partition(b"\0")
        found: dict[str, Any] = json.loads(message)
        return found

    def open(self, page: Path, fragment: str = "", size: tuple[int, int] = DESKTOP, **media: str) -> None:
        """Load a page anew, in a window of a size and with media features such as a colour scheme."""
        width, height = size
        mobile = width < 600
        self.ask(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=mobile,
        )
        features = [{"name": name.replace("_", "-"), "value": value} for name, value in media.items()]
        self.ask("Emulation.setEmulatedMedia", features=features)
        self.ask("Page.navigate", url="about:blank")
        self.events.clear()
        self.ask("Page.navigate", url=page.as_uri() + fragment)
        end = time.monotonic() + SECONDS
        while self.run("document.readyState") != "complete" or self.run("location.protocol") != "file:":
            assert time.monotonic() < end
            time.sleep(0.02)

    def run(self, script: str) -> Any:
        """Return the value of an expression in the page."""
        answer = self.ask("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def key(self, name: str) -> None:
        """Press a key and let it go."""
        codes = {"ArrowRight": 39, "ArrowLeft": 37, "Home": 36, "End": 35, "Tab": 9}
        for kind in ("keyDown", "keyUp"):
            self.ask(
                "Input.dispatchKeyEvent", type=kind, key=name, code=name, windowsVirtualKeyCode=codes[name]
            )

    def middle(self, selector: str) -> tuple[float, float]:
        """Scroll to an element and return where its middle is in the window."""
        script = (
            f"(() => {{ const one = document.querySelector({json.dumps(selector)});"
            " one.scrollIntoView({block: 'center', behavior: 'instant'});"
            " const box = one.getBoundingClientRect();"
            " return [box.x + box.width / 2, box.y + box.height / 2]; })()"
        )
        x, y = self.run(script)
        return x, y

    def click(self, selector: str) -> None:
        """Click the middle of an element with the mouse."""
        x, y = self.middle(selector)
        for kind in ("mousePressed", "mouseReleased"):
            self.ask("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def tap(self, selector: str) -> None:
        """Touch the middle of an element."""
        x, y = self.middle(selector)
        self.ask("Emulation.setTouchEmulationEnabled", enabled=True)
        self.ask("Input.dispatchTouchEvent", type="touchStart", touchPoints=[{"x": x, "y": y}])
        self.ask("Input.dispatchTouchEvent", type="touchEnd", touchPoints=[])
        self.ask("Emulation.setTouchEmulationEnabled", enabled=False)

    def picture(self, path: Path) -> Path:
        """Write a picture of the whole page."""
        size = self.ask("Page.getLayoutMetrics")["cssContentSize"]
        clip = {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}
        taken = self.ask("Page.captureScreenshot", format="png", captureBeyondViewport=True, clip=clip)
        path.write_bytes(base64.b64decode(taken["data"]))
        return path

    def trouble(self) -> list[Any]:
        """Return what was said on the console, exceptions, and requests for anything but the page itself."""
        self.run("1")
        found: list[Any] = []
        for event in self.events:
            method, about = event.get("method"), event.get("params", {})
            if method in ("Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Log.entryAdded"):
                found.append(about)
            elif method == "Network.requestWillBeSent":
                url = about["request"]["url"]
                if not url.startswith(("about:", "data:")) and about.get("type") != "Document":
                    found.append(url)
            elif method == "Page.javascriptDialogOpening":
                found.append(about)
        return found

    def close(self) -> None:
        """End the browser."""
        self.session = ""
        try:
            self.ask("Browser.close")
        finally:
            for end in (self.writing, self.reading):
                os.close(end)
            self.process.wait(SECONDS)
