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
  endif()
endfunction()
