"""Programs for those who work on fultr: the documentation site, its pictures, and checks of a release."""
