// Iterators of itertools whose elements are known once their sources are: the iterator itself is asked which, with
// numbers in place of the elements.
#include <cstring>
#include <limits>

#include "capture/recorder.h"
#include "capture/type_names.h"

namespace reprise::capture {

namespace {

constexpr size_t kMostElements = 1024;

struct CombinationRow {
  const char* type;
  int sources;      // how many arguments are iterables; -1: all positional ones
  bool takes_now;   // it takes all elements of its sources when it is made, else one by one
  bool is_endless;  // it gives the same elements again and again
};

constexpr CombinationRow kRows[] = {
    {"itertools.product", -1, true, false},
    {"itertools.combinations", 1, true, false},
    {"itertools.combinations_with_replacement", 1, true, false},
    {"itertools.permutations", 1, true, false},
    {"itertools.zip_longest", -1, false, false},
    {"itertools.pairwise", 1, false, false},
    {"itertools.islice", 1, false, false},
    {"itertools.compress", 2, false, false},
    {"itertools.cycle", 1, false, true},
};

const CombinationRow* find_row(PyTypeObject* type) {
  for (const CombinationRow& row : kRows) {
    if (strcmp(type->tp_name, row.type) == 0) return &row;
  }
  return nullptr;
}

}  // namespace

// itertools.count(start, step) of constants
Outcome Recorder::make_counter(Operand type, const Operand* args, int n, Operand* out) {
  constexpr Py_ssize_t kMost = Py_ssize_t{1} << 40;
  auto state = std::make_unique<IteratorState>();
  state->kind = IteratorKind::Range;
  state->length = kMost;
  std::vector<ValueId> operands;
  Py_ssize_t numbers[2] = {0, 1};
  for (int i = 0; i < n; i++) {
    if (i > 1 || !PyLong_CheckExact(args[i].object) || !make_constant(args[i]))
      return stop("an unusual itertools.count");
    numbers[i] = PyLong_AsSsize_t(args[i].object);
    const bool is_usual = PyErr_Occurred() == nullptr && numbers[i] > -(1 << 20) && numbers[i] < (1 << 20);
    PyErr_Clear();
    if (!is_usual) return stop("an unusual itertools.count");
    operands.push_back(args[i].id);
  }
  state->start = numbers[0];
  state->step = numbers[1];
  PyObject* result = call_live(type.object, args, n, nullptr);
  if (result == nullptr) return Outcome::Raised;
  *out = new_iterator(result, operands, type.object, std::move(state));
  return Outcome::Done;
}

// *is_handled false: it is none of these, or its sources are of a kind that has no model here.
Outcome Recorder::make_combination(Operand type, const Operand* args, int n, PyObject* kwnames, Operand* out,
                                   bool* is_handled) {
  auto* t = reinterpret_cast<PyTypeObject*>(type.object);
  if (strcmp(t->tp_name, "itertools.count") == 0 && kwnames == nullptr) {
    *is_handled = true;
    return make_counter(type, args, n, out);
  }
  const CombinationRow* row = find_row(t);
  const Py_ssize_t keywords = kwnames != nullptr ? PyTuple_GET_SIZE(kwnames) : 0;
  const int positional = n - static_cast<int>(keywords);
  const int sources = row == nullptr ? 0 : row->sources < 0 ? positional : row->sources;
  if (row == nullptr || sources > positional) return Outcome::Stop;
  for (int i = 0; i < sources; i++) {
    PyObject* source = args[i].object;
    // What is taken one by one must still be there then.
    const bool is_steady = PyTuple_CheckExact(source) || PyList_CheckExact(source) ||
                           ((PyRange_Check(source) || PyUnicode_CheckExact(source)) && make_constant(args[i]));
    if (!is_steady && !row->takes_now) return Outcome::Stop;
  }
  *is_handled = true;
  for (int i = sources; i < n; i++) {
    if (!make_constant(args[i])) return stop(type_name(t) + " with an argument that is known late");
  }
  auto state = std::make_unique<IteratorState>();
  state->is_cyclic = row->is_endless;
  // Numbers in place of the elements, and tuples in place of the sources.
  std::vector<ValueId> ids_of_numbers;
  std::vector<PyObject*> numbered, live;  // owned
  std::vector<ValueId> operands;
  Outcome outcome = Outcome::Done;
  auto clean_up = [&] {
    for (PyObject* o : numbered) Py_XDECREF(o);
    for (PyObject* o : live) Py_XDECREF(o);
  };
  for (int i = 0; i < sources && outcome == Outcome::Done; i++) {
    std::vector<Operand> elements;
    outcome = all_elements(args[i], &elements, row->takes_now);
    if (outcome != Outcome::Done) break;
    const auto count = static_cast<Py_ssize_t>(elements.size());
    PyObject* numbers = PyTuple_New(count);
    PyObject* tuple = PyTuple_New(count);
    std::vector<ValueId> ids;
    // compress() asks for the truth of what stands in its second source.
    const bool is_selector = strcmp(row->type, "itertools.compress") == 0 && i == 1;
    for (Py_ssize_t j = 0; j < count; j++) {
      if (is_selector && active_ && !make_constant(elements[j])) lose("compress() by values that are known late");
      PyTuple_SET_ITEM(numbers, j,
                       is_selector ? Py_NewRef(elements[j].object) : PyLong_FromSize_t(ids_of_numbers.size()));
      PyTuple_SET_ITEM(tuple, j, elements[j].object);
      ids_of_numbers.push_back(elements[j].id);
      ids.push_back(elements[j].id);
    }
    numbered.push_back(numbers);
    if (row->takes_now) {
      const Operand taken = new_tuple(tuple, ids);
      live.push_back(tuple);
      operands.push_back(taken.id);
      continue;
    }
    Py_DECREF(tuple);
    live.push_back(Py_NewRef(args[i].object));
    operands.push_back(args[i].id);
    if (active_ && PyList_CheckExact(args[i].object)) {
      HeapObject* list = heap_of(args[i]);
      if (list == nullptr) {
        clean_up();
        return Outcome::Stop;
      }
      state->lists.push_back({list, ids});
    }
  }
  if (outcome != Outcome::Done) {
    // A source that is an iterator may have given elements already.
    const bool has_taken = outcome == Outcome::Stop && !live.empty() && row->takes_now;
    if (has_taken) {
      std::vector<PyObject*> all(live);
      for (int i = static_cast<int>(live.size()); i < n; i++) all.push_back(args[i].object);
      *out = {PyObject_Vectorcall(type.object, all.data(), positional, kwnames), kNoValue};
      outcome = out->object != nullptr ? Outcome::Done : Outcome::Raised;
    }
    clean_up();
    return outcome;
  }
  const size_t fill = ids_of_numbers.size();
  const bool is_filled = strcmp(row->type, "itertools.zip_longest") == 0;
  ids_of_numbers.push_back(keywords > 0 ? args[n - 1].id : constant_id(Py_None));
  PyObject* maker = Py_NewRef(type.object);
  for (int i = sources; i < n; i++) {
    Py_INCREF(args[i].object);
    live.push_back(args[i].object);
    const bool is_fill = is_filled && i >= positional;
    numbered.push_back(is_fill ? PyLong_FromSize_t(fill) : Py_NewRef(args[i].object));
    if (i < positional) operands.push_back(args[i].id);
  }
  PyObject* result = PyObject_Vectorcall(type.object, live.data(), positional, kwnames);
  if (result == nullptr) {
    clean_up();
    Py_DECREF(maker);
    lose("a call of " + type_name(t) + " that raised");
    return Outcome::Raised;
  }
  if (keywords > 0) {  // a maker that knows them
    PyObject* functools = PyImport_ImportModule("functools");
    PyObject* partial = functools != nullptr ? PyObject_GetAttrString(functools, "partial") : nullptr;
    std::vector<PyObject*> with{type.object};
    with.insert(with.end(), live.begin() + positional, live.end());
    Py_XSETREF(maker, partial != nullptr ? PyObject_Vectorcall(partial, with.data(), 1, kwnames) : nullptr);
    Py_XDECREF(partial);
    Py_XDECREF(functools);
  }
  PyObject* shadow = nullptr;
  if (row->is_endless) {
    for (size_t i = 0; i < fill; i++) state->ids.push_back(ids_of_numbers[i]);
  } else {
    if (is_filled && keywords == 0) {
      PyObject* itertools = PyImport_ImportModule("itertools");
      PyObject* zip_longest = PyObject_GetAttrString(itertools, "zip_longest");
      numbered.push_back(PyLong_FromSize_t(fill));
      PyObject* names_tuple = Py_BuildValue("(s)", "fillvalue");
      shadow = PyObject_Vectorcall(zip_longest, numbered.data(), positional, names_tuple);
      Py_XDECREF(names_tuple);
      Py_XDECREF(zip_longest);
      Py_XDECREF(itertools);
    } else {
      shadow = PyObject_Vectorcall(type.object, numbered.data(), positional, kwnames);
    }
    auto id_of = [&](PyObject* number) { return ids_of_numbers[PyLong_AsSize_t(number)]; };
    while (active_ && shadow != nullptr) {
      PyObject* element = PyIter_Next(shadow);
      if (element == nullptr) break;
      if (state->ids.size() == kMostElements) {
        lose(type_name(t) + " of many elements");
      } else if (PyTuple_Check(element)) {
        std::vector<ValueId> ids;
        for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(element); i++) ids.push_back(id_of(PyTuple_GET_ITEM(element, i)));
        state->ids.push_back(new_tuple(element, ids).id);
      } else {
        state->ids.push_back(id_of(element));
      }
      Py_DECREF(element);
    }
    Py_XDECREF(shadow);
  }
  PyErr_Clear();
  clean_up();
  if (active_ && maker != nullptr) {
    *out = new_iterator(result, operands, maker, std::move(state));
  } else {
    *out = {result, kNoValue};
  }
  Py_XDECREF(maker);
  return Outcome::Done;
}

// chain.from_iterable(list or tuple of lists or tuples): they are all there already, and watched until it has ended.
Outcome Recorder::model_chain_lists(Operand callable, const Operand* args, int n, PyObject* kwnames, Operand* out) {
  auto is_sequence = [](PyObject* o) { return PyList_CheckExact(o) || PyTuple_CheckExact(o); };
  if (n != 2 || kwnames != nullptr || !is_sequence(args[1].object)) return call_opaque(callable);
  auto state = std::make_unique<IteratorState>();
  auto watch = [&](Operand sequence, std::vector<ValueId> ids) {
    if (!PyList_CheckExact(sequence.object)) return true;
    HeapObject* list = heap_of(sequence);
    if (list != nullptr) state->lists.push_back({list, std::move(ids)});
    return list != nullptr;
  };
  std::vector<ValueId> outer, inner;
  if (!element_ids(args[1], &outer) || !watch(args[1], outer)) return stop("a chain of lists of unknown contents");
  for (size_t i = 0; i < outer.size(); i++) {
    const Operand part{PySequence_Fast_ITEMS(args[1].object)[i], outer[i]};
    if (!is_sequence(part.object)) return call_opaque(callable);
    if (!element_ids(part, &inner) || !watch(part, inner)) return stop("a chain of lists of unknown contents");
    state->ids.insert(state->ids.end(), inner.begin(), inner.end());
  }
  PyObject* maker = PyObject_GetAttrString(args[0].object, "from_iterable");
  PyObject* result = maker != nullptr ? PyObject_CallOneArg(maker, args[1].object) : nullptr;
  if (result == nullptr) {
    Py_XDECREF(maker);
    return Outcome::Raised;
  }
  const ValueId operands[] = {args[1].id};
  *out = new_iterator(result, operands, maker, std::move(state));
  Py_DECREF(maker);
  return Outcome::Done;
}

}  // namespace reprise::capture
