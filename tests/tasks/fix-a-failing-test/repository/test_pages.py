import unittest

from pages import page, page_count


class Pages(unittest.TestCase):
    def test_a_full_last_page_is_not_followed_by_an_empty_one(self):
        self.assertEqual(page_count(20, 10), 2)

    def test_a_rest_has_a_page_of_its_own(self):
        self.assertEqual(page_count(21, 10), 3)

    def test_a_page_holds_its_items(self):
        self.assertEqual(page([1, 2, 3], 2, 2), [3])


if __name__ == "__main__":
    unittest.main()
