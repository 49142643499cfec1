#include <algorithm>
#include <set>

#include "codegen/cpp/cpp_imports_impl.h"
#include "codegen/cpp/print_cpp.h"
#include "kernel/prepare.h"

namespace reprise::codegen {
namespace {

// Bump when the same kernel is to give other code.
constexpr std::uint32_t kCppVersion = 1;

// Calls of vector functions on scalars and on vectors of other lengths. GCC takes the vector forms where it vectorises
// a loop ("simd" declares them, by the names of the x86 vector ABI); another compiler calls the scalar form.
constexpr const char* kSleefPrelude = R"(#include <immintrin.h>

#if defined(__GNUC__) && !defined(__clang__)
#define REPRISE_HAS_VECTORS __attribute__((simd("notinbranch"), const, visibility("hidden")))
#else
#define REPRISE_HAS_VECTORS __attribute__((const, visibility("hidden")))
#endif
#define REPRISE_HIDDEN __attribute__((visibility("hidden")))

namespace {

// Part i of a longer vector; a shorter one is repeated, so that each lane holds a number of the caller's.
template <class Vector, class Value> Vector get_part(Value value, std::size_t i) {
  Vector part;
  char* to = reinterpret_cast<char*>(&part);
  if constexpr (sizeof(Value) >= sizeof(Vector)) std::memcpy(to, reinterpret_cast<char*>(&value) + i * sizeof(Vector), sizeof(Vector));
  else for (std::size_t at = 0; at < sizeof(Vector); at += sizeof(Value)) std::memcpy(to + at, &value, sizeof(Value));
  return part;
}
template <class Vector, class Function, class Value, class... Values>
Value call_by_vectors(Function function, Value first, Values... others) {
  Value result;
  for (std::size_t i = 0; i * sizeof(Vector) < sizeof(Value); ++i) {
    const Vector part = function(get_part<Vector>(first, i), get_part<Vector>(others, i)...);
    std::memcpy(reinterpret_cast<char*>(&result) + i * sizeof(Vector), &part, std::min(sizeof(Value), sizeof(Vector)));
  }
  return result;
}

}  // namespace

)";

// "float a, float b" or "a, b".
std::string list_operands(const std::string& type, int count) {
  std::string text;
  for (int i = 0; i < count; ++i) text += (i == 0 ? "" : ", ") + (type.empty() ? "" : type + " ") + char('a' + i);
  return text;
}

// The scalar form and the vector forms of one of Sleef's functions.
std::string print_sleef(const CppImport& import) {
  const int count = kernel::get_row(import.function).operands;
  const bool is_double = import.dtype == types::DType::Float64;
  const std::string name = get_sleef_wrapper(import), pointer = get_import_name(import);
  const std::string scalar = is_double ? "double" : "float", ending = is_double ? "d" : "";
  std::string text =
      "static __m256" + ending + " (*" + pointer + ")(" + list_operands("__m256" + ending, count) + ");\n";
  text += "extern \"C\" REPRISE_HAS_VECTORS " + scalar + " " + name + "(" + list_operands(scalar, count) + ");\n";
  const auto add = [&](const std::string& type, const std::string& suffix, const std::string& label) {
    const std::string head = type + " " + name + suffix + "(" + list_operands(type, count) + ")";
    text += "extern \"C\" REPRISE_HIDDEN " + head + " __asm__(\"" + label + name + "\");\n";
    text += head + " { return call_by_vectors<__m256" + ending + ">(" + pointer + ", " + list_operands("", count) +
            "); }\n";
  };
  const std::string operands(static_cast<std::size_t>(count), 'v');
  const auto get_label = [&](char isa, int floats) {
    return std::string("_ZGV") + isa + "N" + std::to_string(is_double ? floats / 2 : floats) + operands + "_";
  };
  add(scalar, "_1", "");
  text += "#if defined(__GNUC__) && !defined(__clang__)\n";
  add("__m128" + ending, "_b", get_label('b', 4));
  add("__m256" + ending, "_c", get_label('c', 8));
  add("__m256" + ending, "_d", get_label('d', 8));
  text += "#ifdef __AVX512F__\n";
  add("__m512" + ending, "_e", get_label('e', 16));
  return text + "#endif\n#endif\n";
}

std::string print_imports(const std::set<CppImport>& imports) {
  std::string text, names, sets;
  for (const CppImport& import : imports) {
    const std::string name = get_import_name(import);
    if (import.is_vml) {
      const std::string type = import.dtype == types::DType::Float64 ? "double" : "float";
      text += "static void (*" + name + ")(int, const " + type + "*, " + type + "*, std::int64_t);\n";
    } else {
      text += print_sleef(import);
    }
    sets += "  " + name + " = reinterpret_cast<decltype(" + name + ")>(values[" +
            std::to_string(std::count(names.begin(), names.end(), ',')) + "]);\n";
    names += "\"" + name + "\", ";
  }
  text += "extern \"C\" const char* const reprise_import_names[] = {" + names + "nullptr};\n";
  return text + "extern \"C\" void reprise_set_imports(void* const* values) {\n  (void)values;\n" + sets + "}\n\n";
}

}  // namespace

CppUnit print_cpp_unit(std::span<const kernel::Kernel> kernels, const CpuTarget& target) {
  CppUnit unit;
  base::WideHasher hasher;
  hasher.add(kCppVersion);
  std::set<CppImport> imports;
  std::set<std::string> printed;
  std::string functions;
  for (const kernel::Kernel& original : kernels) {
    const base::Hash128 key = get_code_key(original, target, Tier::Full);
    hasher.add(key);
    unit.symbols.push_back(get_symbol(key));
    if (!printed.insert(unit.symbols.back()).second) continue;
    kernel::Kernel kernel = original;
    kernel::prepare(kernel);
    imports.merge(find_cpp_imports(kernel));
    functions += print_cpp(kernel, unit.symbols.back(), CppMath::Torch) + "\n";
  }
  unit.key = hasher.finish();
  const bool has_sleef = std::any_of(imports.begin(), imports.end(), [](const auto& import) { return !import.is_vml; });
  unit.source =
      std::string(get_cpp_prelude()) + "\n" + (has_sleef ? kSleefPrelude : "") + print_imports(imports) + functions;
  return unit;
}

}  // namespace reprise::codegen
