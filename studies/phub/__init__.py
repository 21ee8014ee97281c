"""PHub and BytePS: parameter servers."""
