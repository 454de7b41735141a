"""ONNX ops on strings."""

from __future__ import annotations

from assay.frontends.onnx.registry import Builder, Results, Source, onnx_op
from assay.ir.graph import Value


@onnx_op("StringConcat")
def string_concat(b: Builder, n: Source, x: Value, y: Value) -> Results:
    return b.string_concat(x, y)


@onnx_op("StringSplit")
def string_split(b: Builder, n: Source, x: Value) -> Results:
    limit = n.int("maxsplit", None)
    return b.emit("string_split", x, delimiter=n.str("delimiter", ""), limit=-1 if limit is None else limit)


@onnx_op("RegexFullMatch")
def regex_full_match(b: Builder, n: Source, x: Value) -> Results:
    return b.regex_full_match(x, pattern=n.str("pattern", ""))


@onnx_op("StringNormalizer")
def string_normalizer(b: Builder, n: Source, x: Value) -> Results:
    return b.string_normalize(
        x,
        case=n.str("case_change_action"),
        stopwords=n.strings("stopwords", ()),
        case_sensitive=n.flag("is_case_sensitive"),
    )


@onnx_op("TfIdfVectorizer")
def tf_idf_vectorizer(b: Builder, n: Source, x: Value) -> Results:
    return b.ngram_counts(
        x,
        pool=n.strings("pool_strings", ()) or n.ints("pool_int64s", ()),
        starts=n.ints("ngram_counts"),
        columns=n.ints("ngram_indexes"),
        lengths=(n.int("min_gram_length"), n.int("max_gram_length")),
        skips=n.int("max_skip_count"),
        mode=n.str("mode"),
        weights=n.floats("weights", ()),
    )
