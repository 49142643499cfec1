// Models of torch functions that only sort Python objects: what they return is known, so nothing of it is asked late.
#include <cstring>

#include "capture/models_impl.h"
#include "capture/recorder.h"
#include "capture/type_names.h"
#include "host/torch/tensor.h"

namespace reprise::capture {

// _group_tensors_by_device_and_dtype(lists of tensors, with_indices=False) -> {(device, dtype): (lists, indices)}: each
// list sorted by the metadata of the first list's tensors. The groups follow from metadata; the elements are the
// arguments' own.
MODEL(group_tensors) {
  NO_KEYWORDS(1, 2)
  std::vector<ValueId> list_ids;
  if (!PyList_CheckExact(args[0].object) || !element_ids(args[0], &list_ids) || list_ids.empty() ||
      (n == 2 && !make_constant(args[1]))) {
    return call_torch(callable, args, n, kwnames, out);
  }
  std::vector<std::vector<ValueId>> ids(list_ids.size());
  for (size_t i = 0; i < list_ids.size(); i++) {
    PyObject* list = PyList_GET_ITEM(args[0].object, i);
    if (!PyList_CheckExact(list) || !element_ids({list, list_ids[i]}, &ids[i])) {
      return call_torch(callable, args, n, kwnames, out);
    }
  }
  for (size_t k = 0; k < ids[0].size(); k++) {
    Operand tensor{PyList_GET_ITEM(PyList_GET_ITEM(args[0].object, 0), k), ids[0][k]};
    if (!host::is_plain_tensor(tensor.object)) return call_torch(callable, args, n, kwnames, out);
    if (!know_tensor(tensor)) return stop("tensors to group whose metadata is known late");
  }
  PyObject* groups = call_live(callable.object, args, n, nullptr);
  if (groups == nullptr) {
    lose("a grouping of tensors that raised");
    return Outcome::Raised;
  }
  if (!active_) {
    *out = {groups, kNoValue};
    return Outcome::Done;
  }
  auto give_up = [&] {
    lose("a grouping of tensors with an unexpected result");
    *out = {groups, kNoValue};
    return Outcome::Done;
  };
  // Where the first list's tensors went, by address: one tensor may stand there twice, so positions are taken in order.
  std::vector<PyObject*> keys;
  std::vector<ValueId> contents;
  PyObject *key, *value;
  Py_ssize_t position = 0;
  std::vector<bool> is_taken(ids[0].size(), false);
  PyObject* first_list = PyList_GET_ITEM(args[0].object, 0);
  while (PyDict_Next(groups, &position, &key, &value)) {
    if (!PyTuple_CheckExact(value) || PyTuple_GET_SIZE(value) != 2) return give_up();
    PyObject* lists = PyTuple_GET_ITEM(value, 0);
    if (!PyList_CheckExact(lists) || PyList_GET_SIZE(lists) != static_cast<Py_ssize_t>(ids.size())) return give_up();
    PyObject* leaders = PyList_GET_ITEM(lists, 0);
    std::vector<size_t> indices;
    size_t next = 0;
    for (Py_ssize_t k = 0; k < PyList_GET_SIZE(leaders); k++) {
      PyObject* leader = PyList_GET_ITEM(leaders, k);
      while (next < ids[0].size() && (is_taken[next] || PyList_GET_ITEM(first_list, next) != leader)) next++;
      if (next == ids[0].size()) return give_up();
      is_taken[next] = true;
      indices.push_back(next++);
    }
    std::vector<ValueId> group_lists;
    for (size_t i = 0; i < ids.size(); i++) {
      PyObject* list = PyList_GET_ITEM(lists, i);
      std::vector<ValueId> elements;
      for (Py_ssize_t k = 0; k < PyList_GET_SIZE(list); k++) {
        if (static_cast<size_t>(k) >= indices.size() || indices[k] >= ids[i].size()) return give_up();
        if (PyList_GET_ITEM(list, k) != PyList_GET_ITEM(PyList_GET_ITEM(args[0].object, i), indices[k]))
          return give_up();
        elements.push_back(ids[i][indices[k]]);
      }
      group_lists.push_back(new_list(list, elements).id);
    }
    std::vector<ValueId> index_ids;
    PyObject* live_indices = PyTuple_GET_ITEM(value, 1);
    if (!PyList_CheckExact(live_indices)) return give_up();
    for (Py_ssize_t k = 0; k < PyList_GET_SIZE(live_indices); k++) {
      index_ids.push_back(constant_id(PyList_GET_ITEM(live_indices, k)));
    }
    const ValueId pair[] = {new_list(lists, group_lists).id, new_list(live_indices, index_ids).id};
    keys.push_back(key);
    contents.push_back(constant_id(key));
    contents.push_back(new_tuple(value, pair).id);
  }
  *out = new_dict(groups, contents, keys.data());
  return Outcome::Done;
}

// unwrap_dead_wrappers(arguments) -> the same ones, as long as none outlived a transform of torch.func: that is part of
// a tensor's metadata.
MODEL(unwrap_dead_wrappers) {
  std::vector<ValueId> ids;
  const bool is_known =
      n == 1 && kwnames == nullptr && PyTuple_CheckExact(args[0].object) && element_ids(args[0], &ids);
  if (!active_) return Outcome::Stop;
  if (!is_known) return call_repeated(callable, args, n, kwnames, out);
  for (size_t i = 0; i < ids.size(); i++) {
    Operand element{PyTuple_GET_ITEM(args[0].object, i), ids[i]};
    if (host::is_tensor(element.object) && !facts_[element.id].is_meta_tainted && !know_tensor(element))
      return Outcome::Stop;
  }
  PyObject* result = call_live_alone(callable.object, args, n, nullptr);
  if (result == nullptr) {
    lose("an unwrapping of tensors that raised");
    return Outcome::Raised;
  }
  bool is_same = PyTuple_CheckExact(result) && PyTuple_GET_SIZE(result) == PyTuple_GET_SIZE(args[0].object);
  for (size_t i = 0; is_same && i < ids.size(); i++) {
    is_same = PyTuple_GET_ITEM(result, i) == PyTuple_GET_ITEM(args[0].object, i);
  }
  if (!is_same) lose("tensors of a transform that has ended");
  *out = active_ ? new_tuple(result, ids) : Operand{result, kNoValue};
  return Outcome::Done;
}

// set_autograd_compiler(None, False) -> what was set. It switches TorchDynamo's compiler of backward graphs off where a
// transform differentiates; nobody who uses us has it on.
MODEL(no_autograd_compiler) {
  const bool is_off = n == 2 && kwnames == nullptr && args[0].object == Py_None && args[1].object == Py_False;
  if (!is_off || !is_constant(args[0].id) || !is_constant(args[1].id)) return call_opaque(callable);
  PyObject* result = call_live_alone(callable.object, args, n, nullptr);
  if (result == nullptr) return Outcome::Raised;
  if (!PyTuple_CheckExact(result) || PyTuple_GET_SIZE(result) != 2 || PyTuple_GET_ITEM(result, 0) != Py_None)
    lose("a transform under compiled autograd");
  *out = new_constant(result);
  return Outcome::Done;
}

}  // namespace reprise::capture
