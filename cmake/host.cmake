# The host half: the extension module _C and the Python package around it, for one CPython minor and one torch.

find_package(Python 3.11 REQUIRED COMPONENTS Interpreter Development.Module)

# --- nanobind, from any interpreter that has it: only its sources are used --------------------------------------------

if(NOT REPRISE_NANOBIND_DIR)
  execute_process(COMMAND ${Python_EXECUTABLE} -m nanobind --cmake_dir
    OUTPUT_VARIABLE found OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE failed)
  if(failed)
    message(FATAL_ERROR "nanobind is missing: install it for ${Python_EXECUTABLE}, or set REPRISE_NANOBIND_DIR to "
      "what `python -m nanobind --cmake_dir` prints for an interpreter that has it")
  endif()
  set(REPRISE_NANOBIND_DIR ${found} CACHE PATH "" FORCE)
endif()
find_package(nanobind CONFIG REQUIRED PATHS ${REPRISE_NANOBIND_DIR} NO_DEFAULT_PATH)
nanobind_build_library(nanobind-static)

# --- torch: asked of the interpreter; imported again only when its metadata say that it changed ------------------------

if(REPRISE_TORCH)
  execute_process(COMMAND ${Python_EXECUTABLE} -c
    "import importlib.metadata as m, importlib.util as u; print(m.version('torch'), u.find_spec('torch').origin)"
    OUTPUT_VARIABLE fingerprint OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  if(NOT fingerprint OR NOT fingerprint STREQUAL REPRISE_TORCH_FINGERPRINT)
    execute_process(COMMAND ${Python_EXECUTABLE} -c [=[
import os, torch
print(torch.__version__)
print(int(torch._C._GLIBCXX_USE_CXX11_ABI))
print(os.path.dirname(os.path.abspath(torch.__file__)))
]=] OUTPUT_VARIABLE found OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_VARIABLE error RESULT_VARIABLE failed)
    if(failed)
      message(FATAL_ERROR "cannot import torch with ${Python_EXECUTABLE}. The build uses the torch of the environment "
        "that installs: pip install --no-build-isolation . (or build without it: -DREPRISE_TORCH=OFF)\n${error}")
    endif()
    string(REPLACE "\n" ";" found "${found}")
    list(GET found 0 version)
    list(GET found 1 abi)
    list(GET found 2 dir)
    if(NOT abi EQUAL 1)
      message(FATAL_ERROR "torch ${version} is built with _GLIBCXX_USE_CXX11_ABI=${abi}; expected 1")
    endif()
    set(REPRISE_TORCH_VERSION ${version} CACHE INTERNAL "")
    set(REPRISE_TORCH_DIR ${dir} CACHE INTERNAL "")
    set(REPRISE_TORCH_FINGERPRINT ${fingerprint} CACHE INTERNAL "")
  endif()
endif()

# --- the module -------------------------------------------------------------------------------------------------------

reprise_glob_sources(host_sources host/cpython host/torch interp trace capture aot guards entry runtime interop driver
  bind)
# x_torch.cpp has a twin x_absent.cpp that says "there is no torch".
if(REPRISE_TORCH)
  list(FILTER host_sources EXCLUDE REGEX "_absent\\.cpp$")
else()
  list(FILTER host_sources EXCLUDE REGEX "_torch\\.cpp$")
endif()

Python_add_library(_C MODULE WITH_SOABI ${host_sources})
nanobind_set_visibility(_C)
target_link_libraries(_C PRIVATE reprise_core nanobind-static)

# Python's internal headers are reached as "internal/pycore_frame.h"; some include each other without the folder.
foreach(dir ${Python_INCLUDE_DIRS})
  target_include_directories(_C SYSTEM PRIVATE ${dir} ${dir}/internal)
endforeach()

if(REPRISE_TORCH)
  target_include_directories(_C SYSTEM PRIVATE ${REPRISE_TORCH_DIR}/include
    ${REPRISE_TORCH_DIR}/include/torch/csrc/api/include)
  target_compile_definitions(_C PRIVATE REPRISE_TORCH_VERSION="${REPRISE_TORCH_VERSION}" _GLIBCXX_USE_CXX11_ABI=1)
  # torch is imported first and its libraries are then found by name: no run path to them.
  foreach(name torch_python torch torch_cpu c10)
    target_link_libraries(_C PRIVATE ${REPRISE_TORCH_DIR}/lib/lib${name}.so)
  endforeach()
  message(STATUS "host half: Python ${Python_VERSION}, torch ${REPRISE_TORCH_VERSION}")
else()
  target_compile_definitions(_C PRIVATE REPRISE_NO_TORCH)
  message(STATUS "host half: Python ${Python_VERSION}, no torch")
endif()

# CPython's internal headers are C, and only nearly C++.
foreach(source ${host_sources})
  if(source MATCHES "/host/cpython/internals_[^/]*\\.cpp$")
    set_source_files_properties(${source} PROPERTIES COMPILE_OPTIONS "-fpermissive;-w")
  elseif(source MATCHES "/host/cpython/[^/]*\\.c$")
    set_source_files_properties(${source} PROPERTIES COMPILE_OPTIONS "-w")
  endif()
endforeach()

set_target_properties(_C PROPERTIES
  LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/reprise
  BUILD_WITH_INSTALL_RPATH ON
  INSTALL_RPATH "$ORIGIN")

# --- the package: Python files beside the module, as links, so that a build tree is importable -------------------------

set(package_dir ${CMAKE_SOURCE_DIR}/python/reprise)
file(GLOB_RECURSE package_files CONFIGURE_DEPENDS RELATIVE ${package_dir} ${package_dir}/*.py ${package_dir}/py.typed)
file(GLOB_RECURSE old_links ${CMAKE_BINARY_DIR}/reprise/*.py)
foreach(link ${old_links})
  if(IS_SYMLINK ${link})
    file(REMOVE ${link})
  endif()
endforeach()
foreach(name ${package_files})
  get_filename_component(dir ${CMAKE_BINARY_DIR}/reprise/${name} DIRECTORY)
  file(MAKE_DIRECTORY ${dir})
  file(CREATE_LINK ${package_dir}/${name} ${CMAKE_BINARY_DIR}/reprise/${name} SYMBOLIC)
endforeach()

# A build tree is found by name, too: torch.compile(backend="reprise").
set(dist_info ${CMAKE_BINARY_DIR}/torch_reprise-${PROJECT_VERSION}.dist-info)
file(WRITE ${dist_info}/METADATA "Metadata-Version: 2.1\nName: torch-reprise\nVersion: ${PROJECT_VERSION}\n")
file(WRITE ${dist_info}/entry_points.txt "[torch_dynamo_backends]\nreprise = reprise._dynamo:compile_graph\n")

# The Python files of an installed package come from pyproject.toml (wheel.packages).
if(REPRISE_CORE_LIBRARY)
  install(FILES ${REPRISE_CORE_LIBRARY} DESTINATION reprise)
else()
  install(TARGETS reprise_core LIBRARY DESTINATION reprise)
endif()
install(TARGETS _C LIBRARY DESTINATION reprise)
