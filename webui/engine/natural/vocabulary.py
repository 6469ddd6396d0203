"""The symbols that the network was trained with and their numbers: the `vocab` of the public
hexgrad/Kokoro-82M config.json (Apache-2.0).
"""

from __future__ import annotations

_NUMBERED = (
    (1, ";:,.!?"), (9, "—…\"()“” \u0303ʣʥʦʨᵝꭧAI"), (31, "O"), (33, "Q"), (35, "ST"), (39, "W"),
    (41, "Yᵊabcdef"), (50, "hijklmnopqrstuvwxyzɑɐɒæ"),
    (75, "βɔɕç"), (80, "ɖðʤə"), (85, "ɚɛɜ"), (90, "ɟ"), (92, "ɡ"), (99, "ɥ"), (101, "ɨɪʝ"),
    (110, "ɯɰŋɳɲɴø"), (118, "ɸθœ"),
    (123, "ɹ"), (125, "ɾɻ"), (128, "ʁɽʂʃʈʧ"), (135, "ʊʋ"), (138, "ʌɣɤ"), (142, "χʎ"), (147, "ʒʔ"),
    (156, "ˈˌː"), (162, "ʰ"),
    (164, "ʲ"), (169, "↓"), (171, "→↗↘"), (177, "ᵻ"),
)  # fmt: skip
VOCABULARY = {c: first + i for first, symbols in _NUMBERED for i, c in enumerate(symbols)}
MAX_TOKENS = 510  # in one call of the network, its two end marks not counted
