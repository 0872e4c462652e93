class Watch:
    seconds = 3600.0

    def __init__(self, *a):
        pass

    def refresh(self, m):
        pass

    def page(self):
        return ""
