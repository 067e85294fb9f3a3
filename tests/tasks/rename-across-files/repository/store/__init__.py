from store.db import fetch_row, fetch_rows

__all__ = ["fetch_row", "fetch_rows"]
