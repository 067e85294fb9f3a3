import argparse


def main(arguments=None):
    parser = argparse.ArgumentParser(description="Count lines and words of a file.")
    parser.add_argument("file")
    args = parser.parse_args(arguments)
    with open(args.file, encoding="utf-8") as file:
        text = file.read()
    print(f"{len(text.splitlines())} lines, {len(text.split())} words")


if __name__ == "__main__":
    main()
