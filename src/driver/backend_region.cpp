#include "driver/backend_region.h"

#include <string>
#include <vector>

#include "driver/region_nodes.h"
#include "guards/facts.h"
#include "runtime/statistics.h"

namespace reprise::driver {

namespace {

PyObject* make_tuple(std::span<PyObject* const> objects) {
  PyObject* tuple = PyTuple_New(static_cast<Py_ssize_t>(objects.size()));
  for (size_t i = 0; tuple != nullptr && i < objects.size(); i++) {
    PyTuple_SET_ITEM(tuple, static_cast<Py_ssize_t>(i), Py_NewRef(objects[i]));
  }
  return tuple;
}

PyObject* make_int_tuple(std::span<const int32_t> numbers) {
  PyObject* tuple = PyTuple_New(static_cast<Py_ssize_t>(numbers.size()));
  for (size_t i = 0; tuple != nullptr && i < numbers.size(); i++) {
    PyTuple_SET_ITEM(tuple, static_cast<Py_ssize_t>(i), PyLong_FromLong(numbers[i]));
  }
  return tuple;
}

class BackendRegion final : public entry::RegionRunner {
 public:
  BackendRegion(runtime::CompileContext& context, const entry::Entry& entry, const entry::RegionStep& step)
      : context_(context), entry_(entry), step_(step) {}
  ~BackendRegion() override {
    Py_XDECREF(compiled_);
    for (PyObject* number : numbers_) Py_DECREF(number);
  }

  bool run(PyObject* const* operands, PyObject** results) override {
    if (is_given_up()) return false;
    const size_t count = region().tensors.size();
    if (compiled_ == nullptr && !compile(operands, count)) return false;
    for (size_t i = 0; i < numbers_.size(); i++) {
      if (!guards::equals_exactly(operands[count + i], numbers_[i])) varying_.push_back(static_cast<int32_t>(i));
    }
    if (!varying_.empty()) return false;
    PyObject* value = PyObject_Vectorcall(compiled_, operands, count, nullptr);
    if (value == nullptr) return fail("what the backend made raised");
    const bool is_sequence = PyTuple_Check(value) || PyList_Check(value);
    const bool fits = is_sequence ? PySequence_Fast_GET_SIZE(value) == static_cast<Py_ssize_t>(step_.values.size())
                                  : step_.values.size() == 1;
    if (!fits) {
      Py_DECREF(value);
      PyErr_SetString(PyExc_TypeError, "another number of results than the graph has");
      return fail("what the backend made returned");
    }
    for (size_t i = 0; i < step_.values.size(); i++) {
      results[i] = Py_NewRef(is_sequence ? PySequence_Fast_ITEMS(value)[i] : value);
    }
    Py_DECREF(value);
    return true;
  }

  bool is_given_up() const override { return has_failed_ || !varying_.empty(); }
  std::vector<int32_t> list_varying_numbers() const override { return varying_; }
  std::string describe() const override {
    if (!varying_.empty()) return "a number that is a constant of it varies";
    return has_failed_ ? failure_ : "made by the backend";
  }

 private:
  const trace::Region& region() const { return entry_.region_plan().regions[step_.region]; }

  bool compile(PyObject* const* operands, size_t tensor_count) {
    runtime::PhaseTimer timer(context_.statistics, runtime::Phase::Backend);
    const std::span<PyObject* const> numbers(operands + tensor_count, region().numbers.size());
    for (PyObject* number : numbers) numbers_.push_back(Py_NewRef(number));
    const RegionNodes nodes(entry_, step_, numbers);
    PyObject* list = PyList_New(0);
    for (const RegionNodes::Node& node : nodes.nodes()) {
      PyObject* of = make_int_tuple(nodes.operands(node));
      PyObject* object = node.object == nullptr ? Py_None : node.object;
      PyObject* row = Py_BuildValue("(siOOi)", trace::text_of(node.kind), node.n, object, of, node.slot);
      Py_XDECREF(of);
      if (row == nullptr || PyList_Append(list, row) < 0) PyErr_Clear();
      Py_XDECREF(row);
    }
    PyObject* constants = make_tuple(nodes.constants());
    PyObject* inputs = make_tuple({operands, tensor_count});
    PyObject* outputs = make_int_tuple(nodes.outputs());
    PyObject* module = PyImport_ImportModule("reprise._fx");
    if (module != nullptr) {
      compiled_ =
          PyObject_CallMethod(module, "compile_region", "OOOOO", context_.backend(), list, constants, inputs, outputs);
    }
    Py_XDECREF(module);
    Py_DECREF(list);
    Py_XDECREF(constants);
    Py_XDECREF(inputs);
    Py_XDECREF(outputs);
    return compiled_ != nullptr || fail("the backend raised");
  }

  // Told once; the region runs node by node from now on.
  bool fail(const char* what) {
    has_failed_ = true;
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    PyErr_NormalizeException(&type, &value, &traceback);
    PyObject* text = value == nullptr ? nullptr : PyObject_Str(value);
    const char* utf8 = text == nullptr ? nullptr : PyUnicode_AsUTF8(text);
    failure_ = std::string(what) + " " + (type == nullptr ? "?" : reinterpret_cast<PyTypeObject*>(type)->tp_name) +
               ": " + (utf8 == nullptr ? "" : utf8);
    Py_XDECREF(text);
    Py_XDECREF(type);
    Py_XDECREF(value);
    Py_XDECREF(traceback);
    const std::string message = "reprise: " + context_.name + ": " + failure_ + "; PyTorch runs this part as it is";
    if (PyErr_WarnEx(PyExc_RuntimeWarning, message.c_str(), 1) < 0) PyErr_Clear();
    PyErr_Clear();
    return false;
  }

  runtime::CompileContext& context_;
  const entry::Entry& entry_;
  const entry::RegionStep& step_;
  PyObject* compiled_ = nullptr;
  std::vector<PyObject*> numbers_;  // strong
  std::vector<int32_t> varying_;
  bool has_failed_ = false;
  std::string failure_;
};

}  // namespace

void add_backend_runners(runtime::CompileContext& context, entry::Entry& entry) {
  for (entry::RegionStep& step : entry.regions()) {
    step.runner = std::make_unique<BackendRegion>(context, entry, step);
  }
}

}  // namespace reprise::driver
