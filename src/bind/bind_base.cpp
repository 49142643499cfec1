#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include <string>
#include <string_view>

#include "base/log.h"
#include "base/options.h"
#include "bind/bindings.h"

namespace nb = nanobind;

namespace reprise::bind {
namespace {

#ifdef REPRISE_NO_TORCH
constexpr const char* kTorchVersion = nullptr;
#else
constexpr const char* kTorchVersion = REPRISE_TORCH_VERSION;
#endif

void raise_if(const std::string& error) {
  if (!error.empty()) throw nb::value_error(error.c_str());
}

}  // namespace

void bind_base(nb::module_& m) {
  // "2.13.0", or None for a build without torch; and (3, 11).
  m.attr("built_for_torch") = kTorchVersion == nullptr ? nb::object(nb::none()) : nb::object(nb::str(kTorchVersion));
  m.attr("built_for_python") = nb::make_tuple(PY_MAJOR_VERSION, PY_MINOR_VERSION);

  nb::class_<base::Options>(m, "Options", "Options of one reprise.compile, read and written as text.")
      .def("__init__", [](base::Options* self) { new (self) base::Options(base::make_options_from_environment()); })
      .def(
          "set",
          [](base::Options& options, std::string_view name, std::string_view text) {
            raise_if(base::set_option(options, name, text));
          },
          nb::arg("name"), nb::arg("text"), "Raises ValueError with what was found and what is allowed.")
      .def(
          "get",
          [](const base::Options& options, std::string_view name) { return base::find_option_text(options, name); },
          nb::arg("name"), "The text of an option, or None when there is no such option.")
      .def("describe", [](const base::Options& options) { return base::describe_options(options); })
      .def("__eq__", [](const base::Options& a, const base::Options& b) { return a == b; });
  m.def("list_option_names", &base::list_option_names);

  m.def(
      "set_log_words", [](std::string_view words) { raise_if(base::set_log_words(words)); }, nb::arg("words"),
      "Comma-separated words, \"all\" or \"\". Raises ValueError for an unknown word.");
  m.def("describe_log_words", &base::describe_log_words);
}

}  // namespace reprise::bind
