// A policy that gives every result a fresh id and checks at every use that the id still belongs to the object: what a
// recorder relies on. Executes through PlainPolicy.
#pragma once

#include <Python.h>

#include <cstdio>
#include <cstdlib>
#include <vector>

#include "interp/plain_policy.h"

namespace reprise::testing {

class ShadowPolicy {
 public:
  using Act = interp::Activation;
  using Operand = interp::Operand;
  using Outcome = interp::Outcome;
  static constexpr bool kShadow = true;

  // --- control
  bool is_active() { return true; }
  bool at_boundary(Act&) { return true; }
  bool at_back_edge(Act&) { return true; }
  void enter_frame(Act& act) {
    for (PyObject** slot = act.locals; slot < act.stack_pointer; ++slot) {
      if (*slot != nullptr) act.ids[slot - act.locals] = make_id(*slot);
    }
  }
  void leave_frame(Act& act) { check_frame(act); }
  int32_t constant_id(PyObject* object) { return make_id(object); }
  int32_t caught_exception_id(Act&, PyObject* exception) { return make_id(exception); }
  void on_push_exc_info(Act& act) { check_frame(act); }
  void on_pop_except(Act& act) { check_frame(act); }
  bool on_raised(Act& act) {
    check_frame(act);
    return true;
  }
  void on_unwound(Act&) {}
  bool on_return(Act& act, Operand v) { return check(v), check_frame(act), true; }
  bool on_yield(Act& act, Operand v) { return check(v), check_frame(act), true; }
  bool on_return_generator(Act&) { return true; }
  void on_generator_made(Act&, PyObject*) {}
  Outcome rare(Act& act, const host::Instruction&) { return check_frame(act), Outcome::Done; }

  // --- operations with fixed operands
#define REPRISE_RESULT(...)                                                               \
  const Outcome outcome = __VA_ARGS__;                                                    \
  if (outcome == Outcome::Done && out->object != nullptr) out->id = make_id(out->object); \
  return outcome
  Outcome unary(Act& a, int op, Operand v, Operand* out) {
    check(v);
    REPRISE_RESULT(plain_.unary(a, op, v, out));
  }
  Outcome truth(Act& a, Operand v, bool* out) { return check(v), plain_.truth(a, v, out); }
  Outcome binary(Act& a, int op, Operand l, Operand r, Operand* out) {
    check(a, l, r);
    REPRISE_RESULT(plain_.binary(a, op, l, r, out));
  }
  Outcome compare(Act& a, int op, Operand l, Operand r, Operand* out) {
    check(a, l, r);
    REPRISE_RESULT(plain_.compare(a, op, l, r, out));
  }
  Outcome is_identical(Act& a, Operand l, Operand r, bool* out) {
    return check(a, l, r), plain_.is_identical(a, l, r, out);
  }
  Outcome is_none(Act& a, Operand v, bool* out) { return check(v), plain_.is_none(a, v, out); }
  Outcome contains(Act& a, Operand c, Operand i, bool* out) { return check(a, c, i), plain_.contains(a, c, i, out); }
  Outcome get_item(Act& a, Operand c, Operand k, Operand* out) {
    check(a, c, k);
    REPRISE_RESULT(plain_.get_item(a, c, k, out));
  }
  Outcome set_item(Act& a, Operand c, Operand k, Operand v) {
    return check(a, c, k), check(v), plain_.set_item(a, c, k, v);
  }
  Outcome delete_item(Act& a, Operand c, Operand k) { return check(a, c, k), plain_.delete_item(a, c, k); }
  Outcome load_attribute(Act& a, Operand o, PyObject* n, Operand* out) {
    check(a, o);
    REPRISE_RESULT(plain_.load_attribute(a, o, n, out));
  }
  Outcome load_method(Act& a, Operand o, PyObject* n, Operand* out, Operand* self) {
    check(a, o);
    const Outcome outcome = plain_.load_method(a, o, n, out, self);
    if (out->object != nullptr) out->id = make_id(out->object);
    if (self->object != nullptr) self->id = o.id;
    return outcome;
  }
  Outcome store_attribute(Act& a, Operand o, PyObject* n, Operand v) {
    return check(a, o, v), plain_.store_attribute(a, o, n, v);
  }
  Outcome delete_attribute(Act& a, Operand o, PyObject* n) { return check(a, o), plain_.delete_attribute(a, o, n); }
  Outcome load_super_attribute(Act& a, Operand s, Operand c, Operand o, PyObject* n, bool two, Operand* out) {
    check(a, s, c);
    check(o);
    REPRISE_RESULT(plain_.load_super_attribute(a, s, c, o, n, two, out));
  }
  Outcome load_global(Act& a, PyObject* n, Operand* out) { REPRISE_RESULT(plain_.load_global(a, n, out)); }
  Outcome store_global(Act& a, PyObject* n, Operand v) { return check(a, v), plain_.store_global(a, n, v); }
  Outcome delete_global(Act& a, PyObject* n) { return plain_.delete_global(a, n); }
  Outcome load_cell(Act& a, int i, Operand* out) { REPRISE_RESULT(plain_.load_cell(a, i, out)); }
  Outcome store_cell(Act& a, int i, Operand v) { return check(a, v), plain_.store_cell(a, i, v); }
  Outcome delete_cell(Act& a, int i) { return plain_.delete_cell(a, i); }
  Outcome make_cell(Act& a, int i) {
    const Outcome outcome = plain_.make_cell(a, i);
    a.ids[i] = make_id(a.locals[i]);
    return outcome;
  }
  Outcome copy_free_vars(Act& a, int n) {
    const Outcome outcome = plain_.copy_free_vars(a, n);
    for (int i = a.code->co_nlocalsplus - n; i < a.code->co_nlocalsplus; ++i) a.ids[i] = make_id(a.locals[i]);
    return outcome;
  }
  Outcome build_slice(Act& a, Operand b, Operand e, Operand s, Operand* out) {
    check(a, b, e);
    REPRISE_RESULT(plain_.build_slice(a, b, e, s, out));
  }
  Outcome format_value(Act& a, Operand v, Operand spec, int c, bool f, Operand* out) {
    check(a, v);
    REPRISE_RESULT(plain_.format_value(a, v, spec, c, f, out));
  }
  Outcome list_append(Act& a, Operand l, Operand v) { return check(a, l, v), plain_.list_append(a, l, v); }
  Outcome set_add(Act& a, Operand s, Operand v) { return check(a, s, v), plain_.set_add(a, s, v); }
  Outcome map_add(Act& a, Operand d, Operand k, Operand v) {
    return check(a, d, k), check(v), plain_.map_add(a, d, k, v);
  }
  Outcome list_extend(Act& a, Operand l, Operand i) { return check(a, l, i), plain_.list_extend(a, l, i); }
  Outcome set_update(Act& a, Operand s, Operand i) { return check(a, s, i), plain_.set_update(a, s, i); }
  Outcome list_to_tuple(Act& a, Operand l, Operand* out) {
    check(a, l);
    REPRISE_RESULT(plain_.list_to_tuple(a, l, out));
  }
  Outcome dict_update(Act& a, Operand d, Operand u) { return check(a, d, u), plain_.dict_update(a, d, u); }
  Outcome dict_merge(Act& a, Operand d, Operand u, Operand c) {
    return check(a, d, u), check(c), plain_.dict_merge(a, d, u, c);
  }
  Outcome get_iter(Act& a, Operand o, Operand* out) {
    check(a, o);
    REPRISE_RESULT(plain_.get_iter(a, o, out));
  }
  Outcome get_len(Act& a, Operand o, Operand* out) {
    check(a, o);
    REPRISE_RESULT(plain_.get_len(a, o, out));
  }
  Outcome for_iter(Act& a, Operand it, Operand* out) {
    check(a, it);
    REPRISE_RESULT(plain_.for_iter(a, it, out));
  }
  Outcome call_ex(Act& a, Operand c, Operand args, Operand kwargs, Operand* out) {
    check(a, c, args);
    REPRISE_RESULT(plain_.call_ex(a, c, args, kwargs, out));
  }
  Outcome make_function(Act& a, Operand c, Operand d, Operand k, Operand n, Operand f, Operand* out) {
    check(a, c);
    REPRISE_RESULT(plain_.make_function(a, c, d, k, n, f, out));
  }
  Outcome set_function_attribute(Act& a, Operand f, int w, Operand v) {
    return check(a, f, v), plain_.set_function_attribute(a, f, w, v);
  }
  Outcome import_name(Act& a, PyObject* n, Operand f, Operand l, Operand* out) {
    check(a, f, l);
    REPRISE_RESULT(plain_.import_name(a, n, f, l, out));
  }
  Outcome import_from(Act& a, Operand m, PyObject* n, Operand* out) {
    check(a, m);
    REPRISE_RESULT(plain_.import_from(a, m, n, out));
  }
  Outcome before_with(Act& a, Operand m, Operand* exit, Operand* out) {
    check(a, m);
    const Outcome outcome = plain_.before_with(a, m, exit, out);
    if (outcome != Outcome::Done) return outcome;
    exit->id = make_id(exit->object);
    out->id = make_id(out->object);
    return outcome;
  }
  Outcome with_except_start(Act& a, Operand e, Operand x, Operand* out) {
    check(a, e, x);
    REPRISE_RESULT(plain_.with_except_start(a, e, x, out));
  }
  Outcome raise(Act& a, Operand e, Operand c) { return check(a, e), plain_.raise(a, e, c); }
  Outcome exception_matches(Act& a, Operand e, Operand t, bool* out) {
    return check(a, e, t), plain_.exception_matches(a, e, t, out);
  }

  // --- operations on lists of operands
  Outcome build_tuple(Act& a, const Operand* items, int n, Operand* out) {
    REPRISE_RESULT(plain_.build_tuple(a, objects_of(items, n).data(), n, out));
  }
  Outcome build_list(Act& a, const Operand* items, int n, Operand* out) {
    REPRISE_RESULT(plain_.build_list(a, objects_of(items, n).data(), n, out));
  }
  Outcome build_set(Act& a, const Operand* items, int n, Operand* out) {
    REPRISE_RESULT(plain_.build_set(a, objects_of(items, n).data(), n, out));
  }
  Outcome build_string(Act& a, const Operand* items, int n, Operand* out) {
    REPRISE_RESULT(plain_.build_string(a, objects_of(items, n).data(), n, out));
  }
  Outcome build_map(Act& a, const Operand* pairs, int n, Operand* out) {
    REPRISE_RESULT(plain_.build_map(a, objects_of(pairs, 2 * n).data(), n, out));
  }
  Outcome build_const_key_map(Act& a, Operand keys, const Operand* values, int n, Operand* out) {
    check(keys);
    REPRISE_RESULT(plain_.build_const_key_map(a, keys, objects_of(values, n).data(), n, out));
  }
  Outcome call(Act& a, Operand callable, const Operand* args, int n, PyObject* kwnames, Operand* out) {
    check(a, callable);
    std::vector<PyObject*> objects = objects_of(args, n);
    objects.insert(objects.begin(), nullptr);  // the slot that the callee may borrow
    REPRISE_RESULT(plain_.call(a, callable, objects.data() + 1, n, kwnames, out));
  }
  Outcome unpack_sequence(Act& a, Operand s, int n, Operand* out) {
    check(a, s);
    std::vector<PyObject*> objects(n + 1);
    const Outcome outcome = plain_.unpack_sequence(a, s, n, objects.data());
    for (int i = 0; i < n && outcome == Outcome::Done; ++i) out[i] = {objects[i], make_id(objects[i])};
    return outcome;
  }
  Outcome unpack_ex(Act& a, Operand s, int before, int after, Operand* out) {
    check(a, s);
    std::vector<PyObject*> objects(before + 1 + after);
    const Outcome outcome = plain_.unpack_ex(a, s, before, after, objects.data());
    for (size_t i = 0; i < objects.size() && outcome == Outcome::Done; ++i) out[i] = {objects[i], make_id(objects[i])};
    return outcome;
  }
#undef REPRISE_RESULT

 private:
  int32_t make_id(PyObject* object) {
    objects_.push_back(object);
    return static_cast<int32_t>(objects_.size()) - 1;
  }
  // An id of -1 stands for a value that came from a rare opcode.
  void check(Operand v) {
    if (v.id < 0 || objects_[v.id] == v.object) return;
    std::fprintf(stderr, "id %d belongs to %p, not to %p\n", v.id, static_cast<void*>(objects_[v.id]),
                 static_cast<void*>(v.object));
    std::abort();
  }
  void check(const Act& act, Operand a) {
    check(a);
    const long depth = act.stack_pointer - act.locals;
    if (act.resume_depth + act.instruction->pops != depth || act.resume_mode != act.instruction->resume) std::abort();
  }
  void check(const Act& act, Operand a, Operand b) {
    check(act, a);
    check(b);
  }
  void check_frame(const Act& act) {
    for (PyObject** slot = act.locals; slot < act.stack_pointer; ++slot) check({*slot, act.ids[slot - act.locals]});
  }
  std::vector<PyObject*> objects_of(const Operand* operands, int count) {
    std::vector<PyObject*> objects;
    for (int i = 0; i < count; ++i) {
      check(operands[i]);
      objects.push_back(operands[i].object);
    }
    return objects;
  }

  interp::PlainPolicy plain_;
  std::vector<PyObject*> objects_;  // by id; borrowed, only compared
};

}  // namespace reprise::testing
