ROWS = {1: "one", 2: "two"}


def fetch_row(key):
    """One row. See fetch_rows for all of them."""
    return ROWS[key]


def fetch_rows():
    return [fetch_row(key) for key in sorted(ROWS)]
