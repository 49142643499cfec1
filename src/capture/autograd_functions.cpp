// torch.autograd.Function.apply where no graph is made (gradients are off): a call of the class's forward, which is
// recorded as any function. PyTorch's own code stands between the frames, so none of forward's is left in its middle.
// A recording that ends there is put off: the next one takes this forward as one call that is made again each time.
#include <unordered_set>
#include <utility>

#include "capture/recorder.h"
#include "host/torch/state_word.h"
#include "host/torch/tensor.h"

namespace reprise::capture {

namespace {

PyObject* function_of(PyObject* found) {
  if (found == nullptr || Py_TYPE(found) != &PyStaticMethod_Type) return nullptr;
  PyObject* function = PyObject_GetAttrString(found, "__func__");
  Py_XDECREF(function);  // the static method holds it
  return function != nullptr && PyFunction_Check(function) ? function : nullptr;
}

/// Of torch.autograd.Function itself: no class of the program's has one.
bool is_default_setup(PyObject* found) {
  PyObject* function = function_of(found);
  PyObject* module = function != nullptr ? PyDict_GetItemString(PyFunction_GET_GLOBALS(function), "__name__") : nullptr;
  return module != nullptr && PyUnicode_Check(module) &&
         PyUnicode_CompareWithASCIIString(module, "torch.autograd.function") == 0;
}

bool requires_grad(PyObject* o) { return host::is_tensor(o) && host::make_tensor_meta(o)->requires_grad(); }

}  // namespace

void Recorder::ReturnWitness::note(PyObject* value) {
  objects.clear();
  needs_grad.clear();
  is_tuple = PyTuple_Check(value);
  const Py_ssize_t count = is_tuple ? PyTuple_GET_SIZE(value) : 1;
  for (Py_ssize_t i = 0; i < count; i++) {
    PyObject* o = is_tuple ? PyTuple_GET_ITEM(value, i) : value;
    objects.push_back(o);
    needs_grad.push_back(requires_grad(o));
  }
}

void Recorder::put_off() {
  for (const void* code : function_codes_) ++(*options_.whole_functions)[code];
  is_put_off_ = is_put_off_ || !function_codes_.empty();
}

Outcome Recorder::call_autograd_function(Operand callable, const Operand* args, int n, Operand* out, bool* is_handled) {
  PyObject* self = PyCFunction_Check(callable.object) ? PyCFunction_GET_SELF(callable.object) : nullptr;
  if (self == nullptr || !PyType_Check(self) || !is_constant(callable.id) || host::is_grad_mode() || n == 0) {
    return Outcome::Done;
  }
  auto* type = reinterpret_cast<PyTypeObject*>(self);
  static PyObject* const kForward = PyUnicode_InternFromString("forward");
  static PyObject* const kSetup = PyUnicode_InternFromString("setup_context");
  static PyObject* const kNeeds = PyUnicode_InternFromString("needs_input_grad");
  static PyObject* const kContext = PyUnicode_InternFromString("_backward_cls");
  PyObject* forward = function_of(find_in_class(type, kForward));
  PyObject* context_type = find_in_class(type, kContext);
  if (forward == nullptr || context_type == nullptr || !PyType_Check(context_type) ||
      !is_default_setup(find_in_class(type, kSetup)) ||
      options_.whole_functions->contains(PyFunction_GET_CODE(forward))) {
    return Outcome::Done;
  }
  PyObject* needs = PyTuple_New(n);
  for (int i = 0; i < n; i++) {
    PyTuple_SET_ITEM(needs, i, PyBool_FromLong(requires_grad(args[i].object)));
    if (!host::is_tensor(args[i].object)) continue;
    open_late_sizes(args[i]);
    const bool is_known =
        host::is_plain_tensor(args[i].object) && !facts_[args[i].id].is_meta_tainted && know_tensor(args[i]);
    if (is_known && (host::make_tensor_meta(args[i].object)->flags() & host::TensorMeta::kHasForwardGrad) == 0)
      continue;
    Py_DECREF(needs);
    return Outcome::Done;
  }
  *is_handled = true;
  const ValueId context = emit(NodeKind::Object, {constant_id(context_type)}, nullptr, 1);
  if (context >= 0) {
    facts_[context].type = reinterpret_cast<PyTypeObject*>(context_type);
    facts_[context].is_present = true;
    new_object(context)->function_context = constant_id(needs);
    emit(NodeKind::SetAttribute, {context, constant_id(needs)}, kNeeds);
  }
  Py_DECREF(needs);
  std::vector<Operand> all{{nullptr, context}};
  all.insert(all.end(), args, args + n);
  std::vector<PyObject*> live;
  for (int i = 0; i < n; i++) live.push_back(args[i].object);
  ReturnWitness witness;
  witness.caller = top_;
  ReturnWitness* const outer = std::exchange(return_witness_, &witness);
  function_codes_.push_back(PyFunction_GET_CODE(forward));
  const Outcome outcome =
      call_expected(callable.object, live.data(), n, nullptr, {forward, constant_id(forward)}, all, nullptr, out);
  return_witness_ = outer;
  if (outcome == Outcome::Raised && active_) lose("an autograd function that raised");
  if (outcome == Outcome::Done && active_ && !take_function_results(args, n, witness, out))
    lose("an autograd function with results of another kind");
  if (!active_) out->id = kNoValue;
  function_codes_.pop_back();
  return outcome;
}

// What forward gives is what apply gives, but for an argument: of that it makes an alias.
bool Recorder::take_function_results(const Operand* args, int n, const ReturnWitness& witness, Operand* out) {
  const bool is_tuple = PyTuple_CheckExact(out->object) && witness.is_tuple;
  if (witness.is_tuple != is_tuple) return false;
  std::vector<ValueId> ids{out->id};
  if (is_tuple && !element_ids(*out, &ids)) return false;
  if (ids.size() != witness.objects.size()) return false;
  bool is_changed = false;
  for (size_t i = 0; i < ids.size(); i++) {
    PyObject* element = is_tuple ? PyTuple_GET_ITEM(out->object, i) : out->object;
    if (!host::is_tensor(element)) continue;
    if (!host::is_plain_tensor(element)) return false;
    if (element == witness.objects[i]) {
      if (witness.needs_grad[i]) return false;  // it was detached in place
      continue;
    }
    bool is_argument = false;
    for (int k = 0; k < n; k++) is_argument = is_argument || args[k].object == witness.objects[i];
    if (!is_argument) return false;
    PyObject* method = PyObject_GetAttrString(reinterpret_cast<PyObject*>(host::tensor_type()),
                                              witness.needs_grad[i] ? "detach" : "view_as");
    std::vector<ValueId> operands{constant_id(method), ids[i]};
    if (!witness.needs_grad[i]) operands.push_back(ids[i]);
    Py_XDECREF(method);
    Operand alias;
    last_call_ran_python_ = false;
    finish_torch_result(NodeKind::TensorCall, operands, nullptr, 0, Py_NewRef(element), false, &alias);
    Py_DECREF(alias.object);
    ids[i] = alias.id;
    is_changed = true;
  }
  if (!is_changed) return true;
  if (!is_tuple) {
    out->id = ids[0];
  } else {
    out->id = new_tuple(out->object, ids).id;
  }
  return out->id >= 0;
}

}  // namespace reprise::capture
