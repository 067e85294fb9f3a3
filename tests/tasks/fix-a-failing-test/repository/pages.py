"""Cuts a list into pages, counted from 1."""


def page_count(items, size):
    return items // size + 1


def page(items, number, size):
    start = (number - 1) * size
    return items[start:start + size]
