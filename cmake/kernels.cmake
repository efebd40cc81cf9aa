# The kernels room: host code and simulator launches always; with nvcc, the rows of each chip, compiled for that chip alone.
#
# A kernel's rows are listed in its rows.h as Rows<Chip>, and nowhere else. From these lists come all_rows.h, which
# everybody reads who asks for rows, and the translation units of each chip: the lists of a line below are compiled
# together, in so many parts on eight cores, so that builds are parallel and short. The order is that of `fourfold plan`.
set(kernel_lists
  "moe_stream 5"
  "moe_gemm 8"
  "moe_few 2"
  "dense step 1"
  "delta 1"
  "attention 2"
  "mla 1"
  "sampling 1"
  "all_reduce 1"
  "moe_route moe_tokens moe_combine moe_group record 1")
# A part costs five seconds before its first row: fewer cores make fewer parts.
cmake_host_system_information(RESULT cores QUERY NUMBER_OF_LOGICAL_CORES)

# Sets FOURFOLD_INCLUDES and FOURFOLD_LISTS for these rooms.
macro(fourfold_list_rows)
  set(FOURFOLD_INCLUDES)
  set(FOURFOLD_LISTS)
  foreach(room ${ARGN})
    string(APPEND FOURFOLD_INCLUDES "#include \"kernels/${room}/rows.h\"\n")
    list(APPEND FOURFOLD_LISTS "${room}::Rows<Chip>")
  endforeach()
  list(JOIN FOURFOLD_LISTS ", " FOURFOLD_LISTS)
endmacro()

# Writes the parts of a chip and the table that joins them; sets the variable to these sources.
function(fourfold_row_sources variable chip row_type part_template table_template)
  set(FOURFOLD_CHIP ${chip})
  set(sources)
  set(FOURFOLD_DECLARATIONS)
  set(FOURFOLD_CALLS)
  string(REGEX REPLACE ".*\\.([a-z]+)\\.in$" "\\1" ending ${part_template})
  foreach(line ${kernel_lists})
    string(REGEX MATCH "^(.*) ([0-9]+)$" matched "${line}")
    set(FOURFOLD_ROOMS ${CMAKE_MATCH_1})
    math(EXPR FOURFOLD_PARTS "(${CMAKE_MATCH_2} * ${cores} + 7) / 8")
    if(FOURFOLD_PARTS GREATER CMAKE_MATCH_2)
      set(FOURFOLD_PARTS ${CMAKE_MATCH_2})
    endif()
    string(REPLACE " " ";" rooms ${FOURFOLD_ROOMS})
    list(GET rooms 0 first)
    fourfold_list_rows(${rooms})
    math(EXPR last "${FOURFOLD_PARTS} - 1")
    foreach(FOURFOLD_PART RANGE ${last})
      set(FOURFOLD_FUNCTION add_${chip}_${first}_${FOURFOLD_PART})
      set(source ${CMAKE_BINARY_DIR}/rows/${chip}_${first}_${FOURFOLD_PART}.${ending})
      configure_file(${PROJECT_SOURCE_DIR}/src/kernels/launch/${part_template} ${source} @ONLY)
      list(APPEND sources ${source})
      string(APPEND FOURFOLD_DECLARATIONS "void ${FOURFOLD_FUNCTION}(std::vector<${row_type}>& rows);\n")
      string(APPEND FOURFOLD_CALLS "  ${FOURFOLD_FUNCTION}(rows);\n")
    endforeach()
  endforeach()
  set(source ${CMAKE_BINARY_DIR}/rows/${chip}_table.cpp)
  configure_file(${PROJECT_SOURCE_DIR}/src/kernels/launch/${table_template} ${source} @ONLY)
  set(${variable} ${sources} ${source} PARENT_SCOPE)
endfunction()

set(rooms ${kernel_lists})
list(TRANSFORM rooms REPLACE " [0-9]+$" "")
string(REPLACE " " ";" rooms "${rooms}")
file(GLOB listed CONFIGURE_DEPENDS RELATIVE ${PROJECT_SOURCE_DIR}/src/kernels ${PROJECT_SOURCE_DIR}/src/kernels/*/rows.h)
list(TRANSFORM listed REPLACE "/rows.h$" "")
set(left_out ${listed})
list(REMOVE_ITEM left_out ${rooms})
if(left_out)
  message(FATAL_ERROR "cmake/kernels.cmake: no line of kernel_lists names ${left_out}, which has rows.h")
endif()
fourfold_list_rows(${rooms})
configure_file(${PROJECT_SOURCE_DIR}/src/kernels/launch/all_rows.h.in ${CMAKE_BINARY_DIR}/rows/all_rows.h @ONLY)
add_library(fourfold_all_rows INTERFACE)
target_include_directories(fourfold_all_rows INTERFACE ${CMAKE_BINARY_DIR}/rows)

file(GLOB_RECURSE kernel_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/kernels/*.cpp)
list(FILTER kernel_sources EXCLUDE REGEX "/(choose|cuda_machine|moe_bench|gpu_cuda|gpu_none)\\.cpp$|/c_api/|/kernels/cpu/|/kernels/plan/")
fourfold_row_sources(sim_sources Simulated SimRow sim_part.cpp.in sim_table.cpp.in)
# Most of their time is the simulator's, not theirs.
set_source_files_properties(${sim_sources} PROPERTIES COMPILE_OPTIONS -O1 SKIP_PRECOMPILE_HEADERS ON)
# Choosing rows needs none of them: `fourfold plan` links this alone.
add_library(fourfold_kernels_choose STATIC ${PROJECT_SOURCE_DIR}/src/kernels/moe_layer/choose.cpp)
target_link_libraries(fourfold_kernels_choose PUBLIC fourfold_options fourfold_base fourfold_plan)
# Every row's facts, hundreds of small functions that run once: optimising them would take longer than any other file.
add_library(fourfold_row_table STATIC ${PROJECT_SOURCE_DIR}/src/kernels/plan/row_table.cpp)
target_compile_options(fourfold_row_table PRIVATE -O0)
target_link_libraries(fourfold_row_table PUBLIC fourfold_options fourfold_plan PRIVATE fourfold_all_rows)
target_sources(fourfold_kernels_choose PRIVATE ${PROJECT_SOURCE_DIR}/src/kernels/plan/refused_shapes.cpp)
add_library(fourfold_kernels_room STATIC ${kernel_sources} ${sim_sources})
target_link_libraries(fourfold_kernels_room PUBLIC fourfold_options fourfold_base fourfold_plan fourfold_sim
  fourfold_kernels_choose ${CMAKE_DL_LIBS})
fourfold_precompile(fourfold_kernels_room fourfold_base)

if(FOURFOLD_HAS_CUDA)
  find_package(CUDAToolkit REQUIRED)
  add_library(fourfold_kernels_cuda STATIC
    ${PROJECT_SOURCE_DIR}/src/kernels/launch/cuda_machine.cpp
    ${PROJECT_SOURCE_DIR}/src/kernels/bench/moe_bench.cpp
    ${PROJECT_SOURCE_DIR}/src/kernels/bench/device_tools.cu)
  # The C library takes the machine and leaves the bench.
  set_source_files_properties(${PROJECT_SOURCE_DIR}/src/kernels/bench/moe_bench.cpp PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
  # Without a chip the bench's own tools are still compiled, for one: nvcc has a default of its own otherwise.
  set(gencode ${FOURFOLD_GENCODE_Hopper} ${FOURFOLD_GENCODE_Workstation})
  if(NOT gencode)
    set(gencode -gencode=arch=compute_120f,code=sm_120f)
  endif()
  target_compile_options(fourfold_kernels_cuda PRIVATE $<$<COMPILE_LANGUAGE:CUDA>:${FOURFOLD_CUDA_FLAGS} ${gencode}>)
  target_link_libraries(fourfold_kernels_cuda PUBLIC fourfold_kernels_room CUDA::cudart_static)
  foreach(chip Hopper Workstation)
    if(NOT FOURFOLD_GENCODE_${chip})
      continue()
    endif()
    target_compile_definitions(fourfold_kernels_cuda PRIVATE FOURFOLD_CHIP_${chip}=1)
    fourfold_row_sources(sources ${chip} CudaRow part.cu.in table.cpp.in)
    add_library(fourfold_rows_${chip} STATIC ${sources})
    target_link_libraries(fourfold_rows_${chip} PRIVATE fourfold_options CUDA::cudart_static)
    target_compile_options(fourfold_rows_${chip} PRIVATE
      $<$<COMPILE_LANGUAGE:CUDA>:${FOURFOLD_CUDA_FLAGS} ${FOURFOLD_GENCODE_${chip}}>)
    target_link_libraries(fourfold_kernels_cuda PUBLIC fourfold_rows_${chip})
  endforeach()
endif()

# GPUs by number, or why there are none.
if(FOURFOLD_HAS_CUDA)
  add_library(fourfold_gpu STATIC ${PROJECT_SOURCE_DIR}/src/kernels/gpu/gpu_cuda.cpp)
  target_link_libraries(fourfold_gpu PUBLIC fourfold_options fourfold_kernels_cuda)
else()
  add_library(fourfold_gpu STATIC ${PROJECT_SOURCE_DIR}/src/kernels/gpu/gpu_none.cpp)
  target_link_libraries(fourfold_gpu PUBLIC fourfold_options fourfold_kernels_room)
endif()
