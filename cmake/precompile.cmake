# Headers of the standard library are a quarter of what compiling costs, so they are compiled once: the code is the same.
# What a file forgets to include is found by the builds without this: clang's in ./dev test --long, and those with a
# compiler launcher such as ccache, which does not know how to keep such files.
set(precompile_default ON)
if(CMAKE_CXX_COMPILER_LAUNCHER)
  set(precompile_default OFF)
endif()
option(FOURFOLD_PRECOMPILE "Compile the headers of the standard library once" ${precompile_default})
# Not <chrono>: from g++ 13 on it brings <format>, and std::format stands beside ours in every call with a std::string.
set(FOURFOLD_STANDARD_HEADERS <algorithm> <array> <atomic> <cmath> <cstdint> <cstring> <filesystem> <fstream>
  <functional> <map> <memory> <mutex> <numeric> <optional> <set> <span> <sstream> <string> <string_view> <thread>
  <unordered_map> <utility> <variant> <vector>)

# fourfold_precompile(TARGET OWNER): TARGET uses the file of OWNER, whose flags are the same, or makes it as the owner.
function(fourfold_precompile target owner)
  if(NOT FOURFOLD_PRECOMPILE)
    return()
  elseif(target STREQUAL owner)
    target_precompile_headers(${target} PRIVATE ${FOURFOLD_STANDARD_HEADERS} ${ARGN})
  else()
    target_precompile_headers(${target} REUSE_FROM ${owner})
    cmake_language(EVAL CODE "cmake_language(DEFER CALL fourfold_same_optimisation ${target} ${owner})")
  endif()
endfunction()

# g++ 13 on x86-64 does not take a file that was made with -O2 for a target with -O1, nor the other way round; of -O2, which
# is ours where no option says otherwise, and -O3 it takes both.
function(fourfold_same_optimisation)
  set(found)
  foreach(target ${ARGV})
    get_target_property(options ${target} COMPILE_OPTIONS)
    list(FILTER options INCLUDE REGEX "^-O")
    list(REMOVE_ITEM options -O2 -O3)
    list(APPEND found "'${options}'")
  endforeach()
  list(REMOVE_DUPLICATES found)
  list(LENGTH found kinds)
  if(NOT kinds EQUAL 1)
    message(FATAL_ERROR "fourfold: ${ARGV0} uses the compiled headers of ${ARGV1}, but their options are ${found}")
  endif()
endfunction()

# What is left of a file's cost is mostly the headers of its room, which its neighbours read, too: six files compiled as one
# cost half of what each alone does, sixteen a fifth less than that. So few cores get large groups, and many cores small ones, for all
# of them to have some. OFF compiles less after a small change, and finds what a file forgets to include. Where a name that
# was added meets a neighbour's ("redefinition"), cmake -B build keeps the two apart.
option(FOURFOLD_TOGETHER "Compile six files of a target at a time, or sixteen on up to four cores" OFF)
cmake_host_system_information(RESULT cores QUERY NUMBER_OF_LOGICAL_CORES)
set(FOURFOLD_TOGETHER_FILES 6)
if(cores LESS_EQUAL 4)
  set(FOURFOLD_TOGETHER_FILES 16)
endif()

# At the end of a folder's CMakeLists.txt: for all targets that it has.
function(fourfold_compile_together)
  find_program(FOURFOLD_PYTHON python3)
  if(NOT FOURFOLD_TOGETHER OR NOT FOURFOLD_PYTHON OR CMAKE_CXX_COMPILER_LAUNCHER)
    return()
  endif()
  get_property(targets DIRECTORY PROPERTY BUILDSYSTEM_TARGETS)
  set(lines)
  foreach(target ${targets})
    get_target_property(type ${target} TYPE)
    if(type MATCHES "LIBRARY|EXECUTABLE" AND NOT type STREQUAL "INTERFACE_LIBRARY")
      get_target_property(sources ${target} SOURCES)
      set(files)
      foreach(source ${sources})
        if(source MATCHES "\\.cpp$" AND NOT source MATCHES "\\$<")
          get_filename_component(source ${source} ABSOLUTE)
          get_source_file_property(options ${source} COMPILE_OPTIONS)
          get_source_file_property(is_alone ${source} SKIP_UNITY_BUILD_INCLUSION)
          if(NOT options AND NOT is_alone AND EXISTS ${source})
            list(APPEND files ${source})
          endif()
        endif()
      endforeach()
      string(APPEND lines "${target};${files}\n")
      # A class that others know by name may have members of its own file's types: the file is no header to its neighbours.
      if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
        set_target_properties(${target} PROPERTIES
          UNITY_BUILD_CODE_BEFORE_INCLUDE "#pragma GCC diagnostic ignored \"-Wsubobject-linkage\"")
      endif()
    endif()
  endforeach()
  file(WRITE ${CMAKE_CURRENT_BINARY_DIR}/together.txt "${lines}")
  execute_process(COMMAND ${FOURFOLD_PYTHON} ${PROJECT_SOURCE_DIR}/cmake/together.py ${FOURFOLD_TOGETHER_FILES}
    INPUT_FILE ${CMAKE_CURRENT_BINARY_DIR}/together.txt OUTPUT_FILE ${CMAKE_CURRENT_BINARY_DIR}/together.cmake
    COMMAND_ERROR_IS_FATAL ANY)
  include(${CMAKE_CURRENT_BINARY_DIR}/together.cmake)
endfunction()
