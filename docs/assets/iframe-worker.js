// Browsers refuse to start a worker for a page that was opened from disk. There, the script of the worker runs in a
// hidden frame: a frame with `srcdoc` shares the origin of its page, and both can hand messages to each other. As with
// a worker, a message arrives later, and the first ones wait until the script has run.
if (location.protocol === "file:") {
  window.Worker = class {
    constructor(url) {
      this.waiting = []
      this.frame = document.createElement("iframe")
      this.frame.hidden = true
      this.frame.srcdoc = "<!doctype html>"
      this.frame.onload = () => {
        const inside = this.frame.contentWindow
        inside.postMessage = data => setTimeout(() => this.onmessage?.({ data }))
        const script = inside.document.createElement("script")
        script.src = new URL(url, document.baseURI)
        script.onload = () => {
          this.receive = data => setTimeout(() => inside.onmessage({ data: structuredClone(data) }))
          this.waiting.forEach(this.receive)
        }
        script.onerror = event => this.onerror?.(event)
        inside.document.head.append(script)
      }
      document.documentElement.append(this.frame)
    }
    postMessage(data) {
      if (this.receive) this.receive(data)
      else this.waiting.push(data)
    }
    terminate() {
      this.frame.remove()
    }
  }
}
