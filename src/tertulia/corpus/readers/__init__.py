"""One file per format; each is a pure parser of lines and a small opener."""
