# LLVM inside the core: static, hidden, from the SDK that PyPI has as mlc-llvm-static[all].
#
# The SDK is found through a Python that has it: Python_EXECUTABLE, or python3 on the PATH. REPRISE_LLVM_DIR (the folder
# of LLVMConfig.cmake) goes before. Only files of codegen/llvm and *_llvm.cpp of toolchain see LLVM's headers.

set(REPRISE_LLVM_DIR "" CACHE PATH "the folder of LLVMConfig.cmake; empty: ask Python for mlc-llvm-static")

if(NOT REPRISE_LLVM_DIR)
  set(llvm_pythons ${Python_EXECUTABLE})
  find_program(REPRISE_BUILD_PYTHON NAMES python3 python)
  list(APPEND llvm_pythons ${REPRISE_BUILD_PYTHON})
  foreach(python ${llvm_pythons})
    execute_process(COMMAND ${python} -m mlc_llvm_static.config --cmake-dir
      OUTPUT_VARIABLE found OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE failed)
    if(NOT failed)
      set(REPRISE_LLVM_DIR ${found} CACHE PATH "" FORCE)
      break()
    endif()
  endforeach()
endif()
if(NOT REPRISE_LLVM_DIR)
  message(FATAL_ERROR "LLVM is missing: pip install 'mlc-llvm-static[all]' for python3 on the PATH, or set "
    "REPRISE_LLVM_DIR, or build without native code: -DREPRISE_LLVM=OFF")
endif()

set(MLC_LLVM_STATIC_PROFILE all CACHE STRING "which targets of the SDK are used" FORCE)
# The SDK's own zlib and zstd, not the machine's.
set(ZLIB_USE_STATIC_LIBS ON)
get_filename_component(llvm_prefix ${REPRISE_LLVM_DIR}/../../.. ABSOLUTE)
list(PREPEND CMAKE_PREFIX_PATH ${llvm_prefix})
find_package(LLVM CONFIG REQUIRED PATHS ${REPRISE_LLVM_DIR} NO_DEFAULT_PATH)
if(NOT LLVM_VERSION_MAJOR EQUAL 23)
  message(FATAL_ERROR "LLVM ${LLVM_PACKAGE_VERSION} in ${REPRISE_LLVM_DIR}; expected 23")
endif()
message(STATUS "LLVM ${LLVM_PACKAGE_VERSION}")

# No Passes: the optimisation pipelines are 10 MB that nobody asks for.
llvm_map_components_to_libnames(reprise_llvm_libraries
  Core Support Analysis ScalarOpts TransformUtils TargetParser MC JITLink OrcJIT X86CodeGen X86Desc X86Info NVPTXCodeGen NVPTXDesc NVPTXInfo)

function(reprise_use_llvm target sources)
  separate_arguments(flags NATIVE_COMMAND "${LLVM_DEFINITIONS}")
  foreach(dir ${LLVM_INCLUDE_DIRS})
    list(APPEND flags -isystem ${dir})
  endforeach()
  foreach(source ${sources})
    if(source MATCHES "/codegen/llvm/|_llvm\\.cpp$")
      set_source_files_properties(${source} PROPERTIES COMPILE_OPTIONS "-fno-rtti;${flags}")
    endif()
  endforeach()
  target_link_libraries(${target} PRIVATE ${reprise_llvm_libraries})
  target_link_options(${target} PRIVATE -Wl,--exclude-libs,ALL -Wl,--gc-sections -Wl,-Bsymbolic-functions)
endfunction()
