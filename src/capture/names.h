// Interned attribute names that the models look up. One row a name.
#pragma once

#include <Python.h>

namespace reprise::capture {

struct Names {
#define REPRISE_NAMES(X)                                                                                              \
  X(call, "__call__")                                                                                                 \
  X(init, "__init__")                                                                                                 \
  X(new_, "__new__")                                                                                                  \
  X(get, "__get__")                                                                                                   \
  X(set, "__set__") X(getattr, "__getattr__") X(getattribute, "__getattribute__") X(setattr, "__setattr__")           \
      X(delattr, "__delattr__") X(class_, "__class__") X(dict, "__dict__") X(func, "__func__") X(iter, "__iter__")    \
          X(next, "__next__") X(len, "__len__") X(bool_, "__bool__") X(contains, "__contains__")                      \
              X(getitem, "__getitem__") X(setitem, "__setitem__") X(delitem, "__delitem__") X(missing, "__missing__") \
                  X(enter, "__enter__") X(exit, "__exit__") X(eq, "__eq__") X(hash, "__hash__") X(fget, "fget")       \
                      X(fset, "fset") X(fdel, "fdel") X(grad, "grad") X(wrapped, "__wrapped__") X(items, "items")     \
                          X(keys, "keys") X(values, "values") X(class_getitem, "__class_getitem__")                   \
                              X(instancecheck, "__instancecheck__") X(args, "args") X(func_name, "func")              \
                                  X(attrname, "attrname") X(keywords, "keywords") X(index, "__index__")               \
                                      X(self, "__self__") X(name, "__name__") X(post_init, "__post_init__")           \
                                          X(subclasscheck, "__subclasscheck__") X(default_factory, "default_factory")
#define X(member, text) PyObject* member;
  REPRISE_NAMES(X)
#undef X
};

/// Made at first use; the strings are immortal in practice.
const Names& names();

}  // namespace reprise::capture
