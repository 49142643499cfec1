"""What the sweep does not compare, with reasons. Only what eager itself does not determine stands here."""

# The memory is not initialised: shapes, dtypes and strides are compared, values are not.
UNINITIALISED = {
    "empty",
    "empty_like",
    "empty_permuted",
    "empty_strided",
    "new_empty",
    "new_empty_strided",
    "resize_",  # grows into memory that nobody wrote
    "resize_as_",
}
