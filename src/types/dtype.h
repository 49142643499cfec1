// DType: the element type of a tensor. The rows of dtypes.def are the truth.
//
// Independent of torch: the host half converts (host/torch). A dtype of torch that has no row here is not an error
// but unsupported: find_dtype() gives nothing and the caller leaves the tensor to eager.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "base/export.h"

namespace reprise::types {

enum class DType : std::uint8_t {
#define X(name, text, size_bytes, kind) name,
#include "types/dtypes.def"
#undef X
};

enum class DTypeKind : std::uint8_t { Bool, Unsigned, Signed, Float, Complex };

REPRISE_EXPORT std::string_view get_dtype_name(DType dtype);
REPRISE_EXPORT std::optional<DType> find_dtype(std::string_view name);
REPRISE_EXPORT std::size_t get_size_bytes(DType dtype);
REPRISE_EXPORT DTypeKind get_kind(DType dtype);

// bool, unsigned and signed integers: what torch calls integral, bool included.
inline bool is_integral(DType dtype) { return get_kind(dtype) <= DTypeKind::Signed; }
inline bool is_float(DType dtype) { return get_kind(dtype) == DTypeKind::Float; }
inline bool is_complex(DType dtype) { return get_kind(dtype) == DTypeKind::Complex; }

}  // namespace reprise::types
