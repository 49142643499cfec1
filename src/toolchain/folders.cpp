#include "toolchain/folders.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>

namespace reprise::toolchain {

std::string make_folders(const std::string& path) {
  for (std::size_t end = path.find('/', 1);; end = path.find('/', end + 1)) {
    if (::mkdir(path.substr(0, end).c_str(), 0777) != 0) {
      const int error = errno;  // EROFS, EACCES: of a folder that is there, too
      struct stat status;
      const bool is_folder = ::stat(path.substr(0, end).c_str(), &status) == 0 && S_ISDIR(status.st_mode);
      if (!is_folder) return std::strerror(error == EEXIST ? ENOTDIR : error);
    }
    if (end == std::string::npos) return {};
  }
}

void remove_folder(const std::string& path) {
  if (DIR* folder = ::opendir(path.c_str())) {
    while (const dirent* entry = ::readdir(folder)) ::unlinkat(::dirfd(folder), entry->d_name, 0);
    ::closedir(folder);
  }
  ::rmdir(path.c_str());
}

std::string get_absolute_path(const std::string& path) {
  if (path.starts_with('/')) return path;
  char* here = ::getcwd(nullptr, 0);
  if (here == nullptr) return path;
  const std::string absolute = std::string(here) + "/" + path;
  ::free(here);
  return absolute;
}

}  // namespace reprise::toolchain
