"""Element types, shapes, arrays and their messages, beside `federated_language`."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import stator.federated as sf

fl = pytest.importorskip("federated_language")
ml_dtypes = pytest.importorskip("ml_dtypes")

BFLOAT16 = ml_dtypes.bfloat16
DTYPES = [
    np.bool_,
    *(np.int8, np.int16, np.int32, np.int64),
    *(np.uint8, np.uint16, np.uint32, np.uint64),
    *(np.float16, BFLOAT16, np.float32, np.float64),
    *(np.complex64, np.complex128, np.str_),
]

PLAIN: list[Any] = [
    *(True, 0, 1, 127, 128, -1, 255, -129, 2**31, -(2**31), 2**63, -(2**63), 2**64, 2**200),
    *(0.0, -0.0, 1.5, 0.1, 65504.0, 65519.9, 65520.0, 1e30, 3.4028235677973366e38, 1e300),
    *(float("nan"), float("inf"), 1j, 1e300j, complex(float("nan"), 0)),
    *("a", "", "a\0", "é", b"a", b"a\0", b"\xff"),
]
SCALARS: list[Any] = [dtype(1) for dtype in DTYPES if dtype is not np.str_]
SCALARS += [np.str_("a"), np.bytes_(b"a\0"), np.int8(-1), np.uint64(2**64 - 1), np.float32(-0.0)]
ARRAYS: list[Any] = [
    *(np.array([1, 0, 1], dtype) for dtype in DTYPES if dtype is not np.str_),
    *(np.zeros((0, 3), dtype) for dtype in DTYPES if dtype is not np.str_),
    *(np.array(1, np.int32), np.array("ab"), np.array(b"ab"), np.array("ab", object)),
    *(np.array([[1, 2], [3, 4]], np.int64).T, np.array([1, 2], ">i4"), np.arange(10)[::3]),
    *(np.array(["ab", "c"]), np.array([b"ab\0", b"c"]), np.array(["ab", b"\xffc"], object)),
    *(np.array([], object), np.array([], "U3"), np.array([b"a\0", b"\xff"], object)),
]
OTHERS: list[Any] = [
    *(np.longdouble(1), np.datetime64("2020"), np.array([(1,)], [("a", int)]), np.array(["é"])),
    *(np.array([1, "a"], object), np.array([b"a", 1.5], object)),
]
NO_ARRAYS: list[Any] = [None, [1], (1,), {}]
SHAPES: list[Any] = [
    (),
    None,
    (2, None),
    (2, 3),
    [2, 3],
    (None,),
    (0,),
    (2**40, 2**40),
    (3,),
    (0, 3),
]


def outcome(call: Callable[[], Any]) -> Any:
    """The result, or the class of the exception."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return call()
        except Exception as error:
            return type(error)


def same_array(ours: Any, theirs: Any) -> bool:
    if isinstance(theirs, np.ndarray):
        return (
            isinstance(ours, np.ndarray)
            and (ours.dtype, ours.shape) == (theirs.dtype, theirs.shape)
            and (ours.tobytes() == theirs.tobytes() if ours.dtype != object else True)
            and (ours.tolist() == theirs.tolist() if ours.dtype == object else True)
        )
    if isinstance(theirs, np.generic) and type(ours) is type(theirs):
        return bool(ours.tobytes() == theirs.tobytes())
    return type(ours) is type(theirs) and bool(ours == theirs)


def name(value: Any) -> str:
    return f"{type(value).__name__}:{value!r}"[:60]


@pytest.mark.parametrize("value", PLAIN + SCALARS + ARRAYS + OTHERS, ids=name)
def test_what_fits_an_element_type(value: Any) -> None:
    for dtype in DTYPES:
        ours = outcome(lambda: sf.array_is_compatible_dtype(value, dtype))
        assert ours is fl.array_is_compatible_dtype(value, dtype), dtype


@pytest.mark.parametrize("value", PLAIN + SCALARS + ARRAYS + OTHERS + NO_ARRAYS, ids=name)
def test_inferred_element_types(value: Any) -> None:
    assert outcome(lambda: sf.infer_dtype(value)) is outcome(lambda: fl.infer_dtype(value))


@pytest.mark.parametrize("value", PLAIN + SCALARS + ARRAYS, ids=name)
def test_what_can_be_cast(value: Any) -> None:
    for dtype in DTYPES:
        ours = outcome(lambda: sf.can_cast_dtype(value, dtype))
        assert ours is outcome(lambda: fl.can_cast_dtype(value, dtype)), dtype


def test_valid_element_types() -> None:
    for dtype in [*DTYPES, object, np.bytes_, np.longdouble, int, "int32", np.dtype("int32"), None]:
        assert sf.is_valid_dtype(dtype) is fl.is_valid_dtype(dtype), dtype
        assert outcome(lambda: sf.dtype_to_proto(dtype)) == outcome(
            lambda: fl.dtype_to_proto(dtype)
        )
    for number in [*range(-1, 30), 100, 2**40]:
        ours = outcome(lambda: sf.dtype_from_proto(number))
        assert ours is outcome(lambda: fl.dtype_from_proto(number)), number


@pytest.mark.parametrize("shape", SHAPES, ids=name)
def test_shapes(shape: Any) -> None:
    assert sf.array_shape_is_fully_defined(shape) is fl.array_shape_is_fully_defined(shape)
    assert sf.array_shape_is_scalar(shape) is fl.array_shape_is_scalar(
        tuple(shape or ()) if shape is not None else None
    )
    assert sf.num_elements_in_array_shape(shape) == fl.num_elements_in_array_shape(shape)
    for other in SHAPES:
        ours = sf.array_shape_is_compatible_with(shape, other)
        assert ours is fl.array_shape_is_compatible_with(shape, other), other
    for value in PLAIN + SCALARS + ARRAYS:
        ours = sf.array_is_compatible_shape(value, shape)
        assert ours is fl.array_is_compatible_shape(value, shape), value
    message = fl.array_shape_to_proto(shape)
    assert sf.array_shape_to_proto(shape) == message.SerializeToString()
    assert sf.array_shape_from_proto(message) == fl.array_shape_from_proto(message)
    assert sf.array_shape_from_proto(message.SerializeToString()) == fl.array_shape_from_proto(
        message
    )


def check_message(value: Any, dtype_hint: Any) -> None:
    for suffix in ("", "_content"):
        write, read = f"array_to_proto{suffix}", f"array_from_proto{suffix}"
        theirs = outcome(lambda: getattr(fl, write)(value, dtype_hint=dtype_hint))
        ours = outcome(lambda: getattr(sf, write)(value, dtype_hint=dtype_hint))
        if isinstance(theirs, type):
            assert ours is theirs
            continue
        assert ours == theirs.SerializeToString(deterministic=True)
        expected = getattr(fl, read)(theirs)
        assert same_array(getattr(sf, read)(ours), expected)
        assert same_array(getattr(sf, read)(theirs), expected)


@pytest.mark.parametrize("value", PLAIN + SCALARS + ARRAYS + OTHERS + NO_ARRAYS, ids=name)
def test_messages_of_arrays(value: Any) -> None:
    check_message(value, None)


@pytest.mark.parametrize("value", PLAIN + SCALARS + ARRAYS, ids=name)
def test_messages_of_arrays_of_a_given_element_type(value: Any) -> None:
    for dtype in [*DTYPES, object, np.bytes_, np.longdouble, "int32", np.dtype("int64")]:
        check_message(value, dtype)


def test_arrays_from_messages_can_be_written() -> None:
    array = sf.array_from_proto(sf.array_to_proto(np.array([1, 2])))
    array[0] = 3
    assert array.tolist() == [3, 2]


def test_an_array_of_bytes_keeps_the_zeros_at_their_ends_beside_text() -> None:
    """The peer drops them as soon as one element is text."""
    values = np.array(["ab", b"c\0"], object)
    assert sf.array_from_proto(sf.array_to_proto(values)).tolist() == [b"ab", b"c\0"]


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (
            lambda: sf.array_to_proto(300, dtype_hint=np.int8),
            "`value` has no place in the element type of `dtype_hint`\n"
            "  expected: int8\n"
            "  found:    300 (int)",
        ),
        (
            lambda: sf.array_to_proto(3, dtype_hint="int8"),  # type: ignore[arg-type]
            "`dtype_hint` is no element type\n"
            "  expected: a class of NumPy's scalars, as `numpy.int32`\n"
            "  found:    'int8' (str)",
        ),
        (
            lambda: sf.infer_dtype(2**70),
            "the number has no place in an int64\n"
            "  expected: -9223372036854775808 to 9223372036854775807\n"
            "  found:    1180591620717411303424 (int)",
        ),
        (
            lambda: sf.array_from_proto(b"\x08\x03\x12\x00\x32\x04\x0a\x02\x01\x02"),
            "byte 0 of the message: shape [] needs 1 elements, not 2",
        ),
    ],
)
def test_errors(call: Callable[[], Any], text: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(text)}$"):
        call()
