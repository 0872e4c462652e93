"""A small server that speaks as much of the S3 protocol as reading and listing need, on this machine only."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape


@contextmanager
def object_storage(folder: Path) -> Iterator[str]:
    """Serve the folders of a folder as buckets; gives what follows an address to reach them."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_HEAD(self) -> None:
            self._answer(body=False)

        def do_GET(self) -> None:
            self._answer(body=True)

        def _answer(self, *, body: bool) -> None:
            asked = urlsplit(self.path)
            path, query = folder / unquote(asked.path).strip("/"), parse_qs(asked.query)
            if "list-type" in query:
                self._send(200, self._listing(path, query.get("prefix", [""])[0]), {}, body)
            elif not path.is_file():
                self._send(404, b"", {}, body)
            else:
                content, headers, code = path.read_bytes(), {"Accept-Ranges": "bytes"}, 200
                if wanted := self.headers.get("Range"):
                    first, last = (int(end) for end in wanted.removeprefix("bytes=").split("-"))
                    headers["Content-Range"] = f"bytes {first}-{last}/{len(content)}"
                    content, code = content[first : last + 1], 206
                self._send(code, content, headers, body)

        def _listing(self, bucket: Path, prefix: str) -> bytes:
            files = sorted(path for path in bucket.rglob("*") if path.is_file())
            keys = [(path.relative_to(bucket).as_posix(), path.stat().st_size) for path in files]
            contents = "".join(
                f"<Contents><Key>{escape(key)}</Key><Size>{size}</Size>"
                "<LastModified>2024-05-01T00:00:00.000Z</LastModified></Contents>"
                for key, size in keys
                if key.startswith(prefix)
            )
            return (
                '<?xml version="1.0" encoding="UTF-8"?><ListBucketResult>'
                f"<IsTruncated>false</IsTruncated>{contents}</ListBucketResult>"
            ).encode()

        def _send(self, code: int, content: bytes, headers: dict[str, str], body: bool) -> None:
            self.send_response(code)
            self.send_header("Content-Length", str(len(content)))
            self.send_header("Last-Modified", "Wed, 01 May 2024 00:00:00 GMT")
            self.send_header("ETag", '"1"')
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()
            if body:
                self.wfile.write(content)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its name there
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"?scheme=http&endpoint_override=127.0.0.1:{server.server_port}&region=eu-west-1"
    finally:
        server.shutdown()
        server.server_close()
