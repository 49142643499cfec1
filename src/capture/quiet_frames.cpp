#include "capture/quiet_frames.h"

#include <algorithm>
#include <iterator>
#include <string_view>

namespace reprise::capture {

namespace {

/// Python that library code runs behind C calls: dispatch, class checks, operators of tensors that are written in
/// Python (those under vmap, too).
constexpr std::string_view kQuietModules[] = {"torch._ops",
                                              "torch._VF",
                                              "torch._tensor",
                                              "torch._tensor_str",
                                              "torch.backends",
                                              "torch.overrides",
                                              "abc",
                                              "_weakrefset",
                                              "typing",
                                              "torch._library.utils",
                                              "torch._jit_internal",
                                              "warnings",
                                              "linecache",
                                              "copy",
                                              "copyreg",
                                              "torch._dynamo.mutation_guard",
                                              "torch._dynamo.utils",
                                              "torch._decomp",
                                              "torch._decomp.decompositions",
                                              "torch._prims_common",
                                              "torch._prims_common.wrappers",
                                              "torch._refs",
                                              "enum"};

/// Operators that are written in Python, and the packages that they call.
constexpr std::string_view kOperators[] = {"torch._decomp", "torch._refs", "torch._prims"};
constexpr std::string_view kPackagesOfOperators[] = {"torch",     "inspect",     "contextlib", "typing", "functools",
                                                     "operator",  "collections", "re",         "math",   "weakref",
                                                     "threading", "types",       "copy"};

/// Functions of other modules that only read.
constexpr std::string_view kQuietFunctions[] = {"Tensor.__hash__", "ModuleList.__getitem__",
                                                "ModuleList._get_abs_string_index", "ModuleList.__len__",
                                                "_CallableGenericAlias.__new__"};

std::string_view module_of(host::Frame* frame) {
  PyObject* const name = PyDict_GetItemString(host::get_globals(frame), "__name__");
  const char* const text = name != nullptr && PyUnicode_Check(name) ? PyUnicode_AsUTF8(name) : nullptr;
  return text == nullptr ? std::string_view() : std::string_view(text);
}

/// Library code that an operator in Python calls. Not what runs in its middle by chance: finalisers, signal handlers.
bool is_part_of_operator(std::string_view module) {
  const std::string_view package = module.substr(0, module.find('.'));
  const bool is_library = package.starts_with("namedtuple_") ||
                          std::find(std::begin(kPackagesOfOperators), std::end(kPackagesOfOperators), package) !=
                              std::end(kPackagesOfOperators);
  constexpr int kMostFrames = 32;
  host::Frame* caller = is_library ? host::find_current_frame(PyThreadState_Get()) : nullptr;  // it is not linked yet
  for (int i = 0; i < kMostFrames && caller != nullptr; i++, caller = host::find_previous(caller)) {
    const std::string_view place = module_of(caller);
    for (const std::string_view name : kOperators) {
      if (place.starts_with(name)) return true;
    }
  }
  return false;
}

bool is_quiet_module(std::string_view module) {
  if (module == "numpy" || module.starts_with("numpy.")) return true;
  return std::find(std::begin(kQuietModules), std::end(kQuietModules), module) != std::end(kQuietModules);
}

}  // namespace

bool is_quiet_frame(host::Frame* frame) {
  const std::string_view found = module_of(frame);
  if (is_quiet_module(found) || is_part_of_operator(found)) return true;
  const char* name = PyUnicode_AsUTF8(host::get_code(frame)->co_qualname);
  if (name == nullptr || (!found.starts_with("torch") && found != "collections.abc")) return false;
  return std::find(std::begin(kQuietFunctions), std::end(kQuietFunctions), std::string_view(name)) !=
         std::end(kQuietFunctions);
}

}  // namespace reprise::capture
