// The functions of src/host/torch as a Python module, for the tests of this folder: conversion only.
//
// Handles (TensorMeta, TensorArray, StateWord, RecordedState) are capsules that own their object.
#include <Python.h>

#include <algorithm>
#include <chrono>
#include <string>

#include "host/torch/callables.h"
#include "host/torch/state_word.h"
#include "host/torch/tensor.h"
#include "host/torch/tensor_array.h"

namespace {

using namespace reprise::host;

template <typename T>
PyObject* make_handle(T* value, const char* name) {
  return PyCapsule_New(value, name, [](PyObject* capsule) {
    delete static_cast<T*>(PyCapsule_GetPointer(capsule, PyCapsule_GetName(capsule)));
  });
}

constexpr char kMeta[] = "meta";
constexpr char kArray[] = "array";
constexpr char kWord[] = "word";
constexpr char kRecorded[] = "recorded";

const TensorMeta& get_meta(PyObject* capsule) {
  return **static_cast<TensorMetaRef*>(PyCapsule_GetPointer(capsule, kMeta));
}
TensorArray& get_array(PyObject* capsule) { return *static_cast<TensorArray*>(PyCapsule_GetPointer(capsule, kArray)); }
StateWord& get_word(PyObject* capsule) { return *static_cast<StateWord*>(PyCapsule_GetPointer(capsule, kWord)); }
RecordedState& get_recorded(PyObject* capsule) {
  return *static_cast<RecordedState*>(PyCapsule_GetPointer(capsule, kRecorded));
}

PyObject* to_python(const std::string& text) {
  return PyUnicode_FromStringAndSize(text.data(), static_cast<Py_ssize_t>(text.size()));
}

// Nanoseconds a run of `body`, the best of five rounds.
template <typename Body>
double measure_ns(int64_t repeat, Body body) {
  double best_ns = 1e30;
  for (int round = 0; round < 5; ++round) {
    const auto start = std::chrono::steady_clock::now();
    for (int64_t i = 0; i < repeat; ++i) {
      body();
      asm volatile("" ::: "memory");
    }
    const std::chrono::duration<double, std::nano> time = std::chrono::steady_clock::now() - start;
    best_ns = std::min(best_ns, time.count() / static_cast<double>(repeat));
  }
  return best_ns;
}

bool sink;  // keeps what is measured from being optimised away

#define UNARY(name, expression) \
  PyObject* name(PyObject*, PyObject* a) { return expression; }
#define BINARY(name, expression)                                             \
  PyObject* name(PyObject*, PyObject* const* args, Py_ssize_t count) {       \
    if (count != 2) return PyErr_SetString(PyExc_TypeError, "two"), nullptr; \
    PyObject* const a = args[0];                                             \
    PyObject* const b = args[1];                                             \
    return expression;                                                       \
  }

UNARY(py_is_tensor, PyBool_FromLong(is_tensor(a)))
UNARY(py_is_plain_tensor, PyBool_FromLong(is_plain_tensor(a)))
UNARY(py_tensor_impl, PyLong_FromVoidPtr(tensor_impl(a)))
UNARY(py_tensor_storage, PyLong_FromVoidPtr(tensor_storage(a)))
BINARY(py_may_share_memory, PyBool_FromLong(may_share_memory(a, b)))
UNARY(py_make_tensor_meta, make_handle(new TensorMetaRef(make_tensor_meta(a)), kMeta))
BINARY(py_check_tensor_meta, PyBool_FromLong(check_tensor_meta(get_meta(a), b)))
BINARY(py_check_tensor_header, PyBool_FromLong(check_tensor_header(get_meta(a), b)))
BINARY(py_is_equal_meta, PyBool_FromLong(get_meta(a) == get_meta(b) && get_meta(a).hash() == get_meta(b).hash()))
UNARY(py_is_supported, PyBool_FromLong(get_meta(a).is_supported))
UNARY(py_describe_tensor_meta, to_python(describe_tensor_meta(get_meta(a))))
BINARY(py_describe_meta_mismatch, to_python(describe_meta_mismatch(get_meta(a), b)))
UNARY(py_array_new, (static_cast<void>(a), make_handle(new TensorArray, kArray)))
BINARY(py_array_add, PyBool_FromLong(get_array(a).add(b)))
UNARY(py_array_check, PyBool_FromLong(get_array(a).check_all()))
UNARY(py_array_find, PyLong_FromSize_t(get_array(a).find_mismatch()))

UNARY(py_capture_state, (static_cast<void>(a), make_handle(new StateWord(capture_state_word()), kWord)))
BINARY(py_is_equal_state, PyBool_FromLong(get_word(a) == get_word(b)))
BINARY(py_describe_state_difference, to_python(describe_state_difference(get_word(a), get_word(b))))
UNARY(py_has_user_modes, PyBool_FromLong(has_user_modes(get_word(a))))
UNARY(py_has_functorch_levels, PyBool_FromLong(has_functorch_levels(get_word(a))))
UNARY(py_capture_recorded, (static_cast<void>(a), make_handle(new RecordedState(RecordedState::capture()), kRecorded)))
UNARY(py_check_recorded, PyBool_FromLong(get_recorded(a).check(capture_state_word())))

PyObject* py_keeps_exception(PyObject*, PyObject*) {
  PyErr_SetString(PyExc_ValueError, "pending");
  const StateWord word = capture_state_word();
  const bool kept = PyErr_Occurred() == PyExc_ValueError && word == capture_state_word();
  PyErr_Clear();
  return PyBool_FromLong(kept);
}

PyObject* py_set_grad_in_scope(PyObject*, PyObject* function) {
  const GradModeGuard guard(false);
  return PyObject_CallNoArgs(function);
}

PyObject* py_classify(PyObject*, PyObject* callable) {
  const TorchCallable found = classify_torch_callable(callable);
  return Py_BuildValue("Nss", PyBool_FromLong(found.is_torch), text_of(found.kind), found.name);
}

PyObject* py_classify_attribute(PyObject*, PyObject* attribute) {
  const TensorAttribute found = classify_tensor_attribute(attribute);
  return Py_BuildValue("ss", text_of(found.read), text_of(found.write));
}

PyObject* py_has_data_dependent_sizes(PyObject*, PyObject* const* args, Py_ssize_t count, PyObject* names) {
  const TorchCallable found = classify_torch_callable(args[0]);
  return PyBool_FromLong(has_data_dependent_sizes(found, args + 1, static_cast<size_t>(count - 1), names));
}

PyObject* py_find_unresolved_rows(PyObject*, PyObject*) {
  PyObject* const list = PyList_New(0);
  for (const char* const name : find_unresolved_torch_rows()) {
    PyObject* const text = PyUnicode_FromString(name);
    PyList_Append(list, text);
    Py_DECREF(text);
  }
  return list;
}

// --- measurements ---

PyObject* py_bench_is_tensor(PyObject*, PyObject* object) {
  return PyFloat_FromDouble(measure_ns(2'000'000, [&] { sink = is_tensor(object); }));
}

PyObject* py_bench_check_meta(PyObject*, PyObject* tensor) {
  const TensorMetaRef meta = make_tensor_meta(tensor);
  return PyFloat_FromDouble(measure_ns(2'000'000, [&] { sink = check_tensor_meta(*meta, tensor); }));
}

PyObject* py_bench_array(PyObject*, PyObject* array) {
  return PyFloat_FromDouble(measure_ns(2'000, [&] { sink = get_array(array).check_all(); }));
}

// The same when the caches hold something else.
PyObject* py_bench_array_cold(PyObject*, PyObject* array) {
  static std::string noise(64 << 20, 'x');
  double sum_ns = 0;
  constexpr int kRounds = 20;
  for (int round = 0; round < kRounds; ++round) {
    for (size_t i = 0; i < noise.size(); i += 64) noise[i] = static_cast<char>(noise[i] + 1);
    const auto start = std::chrono::steady_clock::now();
    sink = get_array(array).check_all();
    sum_ns += std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now() - start).count();
  }
  return PyFloat_FromDouble(sum_ns / kRounds);
}

PyObject* py_bench_capture_state(PyObject*, PyObject*) {
  StateWord word;
  return PyFloat_FromDouble(measure_ns(2'000'000, [&] { capture_state_word(word); }));
}

PyObject* py_bench_check_state(PyObject*, PyObject*) {
  const StateWord recorded = capture_state_word();
  StateWord now;
  return PyFloat_FromDouble(measure_ns(2'000'000, [&] {
    capture_state_word(now);
    sink = recorded == now;
  }));
}

PyObject* py_bench_classify(PyObject*, PyObject* callable) {
  return PyFloat_FromDouble(measure_ns(2'000'000, [&] { sink = classify_torch_callable(callable).is_torch; }));
}

#define FAST(name) \
  {#name, reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(py_##name)), METH_FASTCALL, nullptr}
#define ONE(name) {#name, py_##name, METH_O, nullptr}
#define NONE(name) {#name, py_##name, METH_NOARGS, nullptr}

PyMethodDef methods[] = {
    ONE(is_tensor),
    ONE(is_plain_tensor),
    ONE(tensor_impl),
    ONE(tensor_storage),
    FAST(may_share_memory),
    ONE(make_tensor_meta),
    FAST(check_tensor_meta),
    FAST(check_tensor_header),
    FAST(is_equal_meta),
    ONE(is_supported),
    ONE(describe_tensor_meta),
    FAST(describe_meta_mismatch),
    NONE(array_new),
    FAST(array_add),
    ONE(array_check),
    ONE(array_find),
    NONE(capture_state),
    FAST(is_equal_state),
    FAST(describe_state_difference),
    ONE(has_user_modes),
    ONE(has_functorch_levels),
    NONE(capture_recorded),
    ONE(check_recorded),
    NONE(keeps_exception),
    ONE(set_grad_in_scope),
    ONE(classify),
    ONE(classify_attribute),
    NONE(find_unresolved_rows),
    {"has_data_dependent_sizes",
     reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(py_has_data_dependent_sizes)),
     METH_FASTCALL | METH_KEYWORDS, nullptr},
    ONE(bench_is_tensor),
    ONE(bench_check_meta),
    ONE(bench_array),
    ONE(bench_array_cold),
    NONE(bench_capture_state),
    NONE(bench_check_state),
    ONE(bench_classify),
    {nullptr, nullptr, 0, nullptr},
};

PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "torch_host_native", nullptr, -1, methods, nullptr, nullptr, nullptr, nullptr};

}  // namespace

PyMODINIT_FUNC PyInit_torch_host_native() { return PyModule_Create(&definition); }
