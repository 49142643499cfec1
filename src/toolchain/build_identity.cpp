#include <dlfcn.h>
#include <link.h>
#include <sys/stat.h>

#include <cstring>

#include "base/hash.h"
#include "toolchain/code_cache.h"

namespace reprise::toolchain {
namespace {

// The library of an address, and the build id that its notes say.
struct Search {
  std::uintptr_t address;
  std::string id;
};

std::string find_id(const char* notes, std::size_t size_bytes) {
  for (std::size_t at = 0; at + sizeof(ElfW(Nhdr)) <= size_bytes;) {
    ElfW(Nhdr) note;
    std::memcpy(&note, notes + at, sizeof note);
    const std::size_t name = at + sizeof note, text = name + (note.n_namesz + 3) / 4 * 4;
    if (text + note.n_descsz > size_bytes) break;
    if (note.n_type == NT_GNU_BUILD_ID && note.n_namesz == 4 && std::memcmp(notes + name, "GNU", 4) == 0) {
      return {notes + text, note.n_descsz};
    }
    at = text + (note.n_descsz + 3) / 4 * 4;
  }
  return {};
}

int visit(dl_phdr_info* info, std::size_t, void* data) {
  Search& search = *static_cast<Search*>(data);
  bool is_ours = false;
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const ElfW(Phdr) & part = info->dlpi_phdr[i];
    const std::uintptr_t start = info->dlpi_addr + part.p_vaddr;
    is_ours = is_ours || (part.p_type == PT_LOAD && search.address >= start && search.address - start < part.p_memsz);
  }
  if (!is_ours) return 0;
  for (int i = 0; i < info->dlpi_phnum && search.id.empty(); ++i) {
    const ElfW(Phdr) & part = info->dlpi_phdr[i];
    if (part.p_type != PT_NOTE) continue;
    search.id = find_id(reinterpret_cast<const char*>(info->dlpi_addr + part.p_vaddr), part.p_memsz);
  }
  return 1;
}

}  // namespace

std::string get_build_identity() {
  Search search{reinterpret_cast<std::uintptr_t>(&get_build_identity), {}};
  dl_iterate_phdr(visit, &search);
  base::WideHasher hasher;
  hasher.add(std::string_view(search.id));
  Dl_info info;
  struct stat status;
  if (search.id.empty() && dladdr(reinterpret_cast<void*>(&get_build_identity), &info) != 0 &&
      stat(info.dli_fname, &status) == 0) {
    hasher.add(status.st_size).add(status.st_mtim.tv_sec).add(status.st_mtim.tv_nsec);
  }
  return hasher.finish().get_text().substr(0, 16);
}

}  // namespace reprise::toolchain
