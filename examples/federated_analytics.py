"""Federated analytics: `python -m examples.federated_analytics`.

Clients have words that they typed. The server learns how long words are (a histogram), and which
words many clients have (heavy hitters), letter by letter: in each round clients say how many of
them have a word that begins as those that are left, and what few clients have goes no further. The
work at clients is NumPy code, which is traced and sent as a program.
"""

from __future__ import annotations

import argparse

import numpy as np

import stator.federated as fl

# Words have seven letters at most: behind the last one there is an end.
LONGEST, LETTERS = 8, 27
WORDS = fl.TensorType(np.int64, [None, LONGEST])
CLIENTS_WORDS = fl.FederatedType(WORDS, fl.CLIENTS)
PREFIXES = 64


@fl.local_computation(WORDS)
def lengths_of(words):
    """How many of a client's words have each length."""
    return np.histogram((words > 0).sum(axis=1), bins=LONGEST, range=(0.5, LONGEST + 0.5))[0]


@fl.federated_computation(CLIENTS_WORDS)
def lengths(words):
    """How many of all words have each length."""
    return fl.federated_sum(fl.federated_map(lengths_of, words))


@fl.local_computation(fl.TensorType(np.int64, [PREFIXES, LONGEST]), np.int64, WORDS)
def votes_of(prefixes, length, words):
    """For each beginning and each letter whether a client has a word that goes on so."""
    place = np.arange(LONGEST)
    begins = ((words[:, None, :] == prefixes) | (place >= length)).all(axis=2)
    letter = (words * (place == length)).sum(axis=1)
    goes_on = begins[:, :, None] & (letter[:, None, None] == np.arange(LETTERS))
    return goes_on.any(axis=0).astype(np.int64)


@fl.federated_computation(
    fl.FederatedType(fl.TensorType(np.int64, [PREFIXES, LONGEST]), fl.SERVER),
    fl.FederatedType(np.int64, fl.SERVER),
    CLIENTS_WORDS,
)
def votes(prefixes, length, words):
    """The same for all clients. No client need see what another one has voted for."""
    voted = fl.federated_map(
        votes_of, (fl.federated_broadcast(prefixes), fl.federated_broadcast(length), words)
    )
    return fl.federated_secure_sum(voted, 1)


def encoded(words: list[str]) -> np.ndarray:
    """Words as numbers of letters; 0 is behind the end."""
    found = np.zeros((len(words), LONGEST), np.int64)
    for row, word in zip(found, words, strict=True):
        row[: len(word)] = [ord(letter) - 96 for letter in word]
    return found


def heavy_hitters(clients: list[np.ndarray], least: int) -> dict[str, int]:
    """The words that at least so many clients have, and how many have them."""
    found: dict[str, int] = {}
    begun = [""]
    for length in range(LONGEST):
        prefixes = encoded(begun)
        padded = np.full((PREFIXES, LONGEST), -1, np.int64)
        padded[: len(begun)] = prefixes
        counts = votes(padded, np.int64(length), clients)[: len(begun)]
        following = []
        for begin, of_letter in zip(begun, counts, strict=True):
            if begin and of_letter[0] >= least:
                found[begin] = int(of_letter[0])
            following += [begin + chr(96 + at) for at in range(1, 27) if of_letter[at] >= least]
        begun = following[:PREFIXES]
        if not begun:
            break
    return found


def run(count: int, least: int) -> tuple[np.ndarray, dict[str, int], list[list[str]]]:
    """Draws words for so many clients, and learns of them."""
    drawn = np.random.default_rng(0)
    common = ["the", "and", "model", "server", "data", "an"]
    shares = np.array([0.8, 0.6, 0.3, 0.25, 0.15, 0.1])
    texts = []
    for _ in range(count):
        own = ["".join(drawn.choice(list("abcxyz"), drawn.integers(3, 7))) for _ in range(3)]
        texts.append([word for word in common if drawn.random() < shares[common.index(word)]] + own)
    clients = [encoded(words) for words in texts]
    histogram = lengths(clients)
    print(f"{histogram.sum()} words of {count} clients, by length: {histogram.tolist()}")
    found = heavy_hitters(clients, least)
    told = ", ".join(f"{word} ({number})" for word, number in sorted(found.items()))
    print(f"words that at least {least} clients have: {told}")
    return histogram, found, texts


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m examples.federated_analytics")
    parser.add_argument("--clients", type=int, default=1000)
    parser.add_argument("--least", type=int, default=50)
    options = parser.parse_args()
    run(options.clients, options.least)


if __name__ == "__main__":
    main()
