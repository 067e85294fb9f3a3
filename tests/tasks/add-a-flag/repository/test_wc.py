import contextlib
import io
import tempfile
import unittest

from wc import main


def said(text, *flags):
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
        file.write(text)
        file.flush()
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            main([*flags, file.name])
        return out.getvalue()


class Wc(unittest.TestCase):
    def test_text(self):
        self.assertEqual(said("a b\nc\n"), "2 lines, 3 words\n")
