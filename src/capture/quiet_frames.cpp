#include "capture/quiet_frames.h"

#include <algorithm>
#include <iterator>
#include <string_view>

namespace reprise::capture {

namespace {

/// Python that library code runs behind C calls: dispatch, class checks, operators of tensors that are written in
/// Python.
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
                                              "torch._dynamo.utils"};

/// Functions of other modules that only read.
constexpr std::string_view kQuietFunctions[] = {"Tensor.__hash__", "ModuleList.__getitem__",
                                                "ModuleList._get_abs_string_index", "ModuleList.__len__"};

bool is_quiet_module(PyObject* name) {
  const char* text = name != nullptr && PyUnicode_Check(name) ? PyUnicode_AsUTF8(name) : nullptr;
  if (text == nullptr) return false;
  const std::string_view module(text);
  if (module == "numpy" || module.starts_with("numpy.")) return true;
  return std::find(std::begin(kQuietModules), std::end(kQuietModules), module) != std::end(kQuietModules);
}

}  // namespace

bool is_quiet_frame(host::Frame* frame) {
  PyObject* module = PyDict_GetItemString(host::get_globals(frame), "__name__");
  if (is_quiet_module(module)) return true;
  const char* name = PyUnicode_AsUTF8(host::get_code(frame)->co_qualname);
  const char* place = module != nullptr && PyUnicode_Check(module) ? PyUnicode_AsUTF8(module) : nullptr;
  if (name == nullptr || place == nullptr || !std::string_view(place).starts_with("torch")) return false;
  return std::find(std::begin(kQuietFunctions), std::end(kQuietFunctions), std::string_view(name)) !=
         std::end(kQuietFunctions);
}

}  // namespace reprise::capture
