# libreprise_core.so, and without LLVM the same again: libreprise_core.so in the folder without_llvm of a build tree.

reprise_glob_sources(core_sources base types sym graph passes kernel lower schedule program codegen toolchain)
find_package(Threads REQUIRED)

# x_llvm.cpp and codegen/llvm/ have twins x_absent.cpp that say "there is no code generator".
set(native_sources ${core_sources})
list(FILTER native_sources INCLUDE REGEX "_llvm\\.cpp$|/codegen/llvm/")
set(absent_sources ${core_sources})
list(FILTER absent_sources INCLUDE REGEX "_absent\\.cpp$")
list(FILTER core_sources EXCLUDE REGEX "_llvm\\.cpp$|/codegen/llvm/|_absent\\.cpp$")

# Loops that have to become vector code, in builds for debugging too.
set_source_files_properties(${CMAKE_SOURCE_DIR}/src/base/mersenne_twister.cpp PROPERTIES COMPILE_OPTIONS "-O3")
add_library(reprise_core_objects OBJECT ${core_sources})
target_link_libraries(reprise_core_objects PUBLIC reprise_flags)

function(reprise_add_core name folder)
  add_library(${name} SHARED $<TARGET_OBJECTS:reprise_core_objects> ${ARGN})
  target_link_libraries(${name} PUBLIC reprise_flags PRIVATE Threads::Threads)
  set_target_properties(${name} PROPERTIES OUTPUT_NAME reprise_core
    LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/${folder})
  if(NOT REPRISE_SANITIZE)  # the sanitizer's functions are in the executable, not in a library
    target_link_options(${name} PRIVATE -Wl,--no-undefined)
  endif()
  target_link_options(${name} PRIVATE -Wl,--build-id)  # which code in a cache is of this build
endfunction()

if(REPRISE_LLVM)
  include(cmake/llvm.cmake)
  reprise_add_core(reprise_core reprise ${native_sources})
  reprise_use_llvm(reprise_core "${native_sources}")
else()
  reprise_add_core(reprise_core reprise ${absent_sources})
endif()
if(REPRISE_TESTS)  # what tools/test_host.sh links; not built by default
  reprise_add_core(reprise_core_without_llvm without_llvm ${absent_sources})
  set_target_properties(reprise_core_without_llvm PROPERTIES EXCLUDE_FROM_ALL ON)
endif()
