#include "types/dtype.h"

#include <iterator>
#include <string>

#include "base/check.h"

namespace reprise::types {
namespace {

struct DTypeRow {
  DType dtype;
  std::string_view name;
  std::size_t size_bytes;
  DTypeKind kind;
};

constexpr DTypeRow kDTypes[] = {
#define X(name, text, size_bytes, kind) {DType::name, text, size_bytes, DTypeKind::kind},
#include "types/dtypes.def"
#undef X
};

const DTypeRow& get_row(DType dtype) {
  const auto i = static_cast<std::size_t>(dtype);
  REPRISE_CHECK(i < std::size(kDTypes), "dtype number " + std::to_string(i));
  return kDTypes[i];
}

}  // namespace

std::string_view get_dtype_name(DType dtype) { return get_row(dtype).name; }
std::size_t get_size_bytes(DType dtype) { return get_row(dtype).size_bytes; }
DTypeKind get_kind(DType dtype) { return get_row(dtype).kind; }

std::optional<DType> find_dtype(std::string_view name) {
  for (const DTypeRow& row : kDTypes) {
    if (row.name == name) return row.dtype;
  }
  return std::nullopt;
}

}  // namespace reprise::types
