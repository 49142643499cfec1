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
                                              "torch.backends",
                                              "torch.overrides",
                                              "abc",
                                              "_weakrefset",
                                              "typing",
                                              "torch._library.utils",
                                              "torch._jit_internal",
                                              "copy",
                                              "copyreg",
                                              "torch._dynamo.mutation_guard",
                                              "torch._dynamo.utils"};

bool is_quiet_module(PyObject* name) {
  const char* text = name != nullptr && PyUnicode_Check(name) ? PyUnicode_AsUTF8(name) : nullptr;
  if (text == nullptr) return false;
  const std::string_view module(text);
  if (module == "numpy" || module.starts_with("numpy.")) return true;
  return std::find(std::begin(kQuietModules), std::end(kQuietModules), module) != std::end(kQuietModules);
}

}  // namespace

bool is_quiet_frame(host::Frame* frame) {
  PyCodeObject* code = host::get_code(frame);
  if (PyUnicode_CompareWithASCIIString(code->co_qualname, "Tensor.__hash__") == 0) return true;
  return is_quiet_module(PyDict_GetItemString(host::get_globals(frame), "__name__"));
}

}  // namespace reprise::capture
