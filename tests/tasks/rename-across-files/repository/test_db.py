import unittest

import store


class Db(unittest.TestCase):
    def test_rows(self):
        name = "load_record" if hasattr(store, "load_record") else "fetch_row"
        self.assertEqual(getattr(store, name)(1), "one")
        self.assertEqual(store.fetch_rows(), ["one", "two"])
