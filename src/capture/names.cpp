#include "capture/names.h"

namespace reprise::capture {

const Names& names() {
  static const Names kNames = [] {
    Names all;
#define X(member, text) all.member = PyUnicode_InternFromString(text);
#include "capture/names.def"
    return all;
  }();
  return kNames;
}

}  // namespace reprise::capture
