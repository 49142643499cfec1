// The functions of Sleef and VML that a kernel calls, by their names in libraries and in printed code.
#pragma once

#include <compare>
#include <set>
#include <string>

#include "kernel/kernel.h"

namespace reprise::codegen {

struct CppImport {
  kernel::MathFunction function;
  types::DType dtype;
  bool is_vml;  // over arrays; else Sleef's, 8 floats or 4 doubles at once

  auto operator<=>(const CppImport&) const = default;
};

std::set<CppImport> find_cpp_imports(const kernel::Kernel& kernel);

// vmsExp, Sleef_expf8_u10avx2.
inline std::string get_import_name(const CppImport& import) {
  const kernel::MathRow& row = kernel::get_row(import.function);
  const bool is_double = import.dtype == types::DType::Float64;
  if (import.is_vml) return (is_double ? "vmd" : "vms") + std::string(row.mkl);
  return "Sleef_" + std::string(row.sleef) + (is_double ? "d4_" : "f8_") + std::string(row.accuracy) + "avx2";
}

// What printed code calls Sleef's function by, for one number: sleef_expf.
inline std::string get_sleef_wrapper(const CppImport& import) {
  return "sleef_" + std::string(kernel::get_row(import.function).sleef) +
         (import.dtype == types::DType::Float64 ? "" : "f");
}

}  // namespace reprise::codegen
