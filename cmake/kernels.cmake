# The kernels room: host code and simulator launches always; with nvcc, the rows of each chip as generated translation
# units (one per part), compiled for that chip alone.
file(GLOB_RECURSE kernel_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/kernels/*.cpp)
list(FILTER kernel_sources EXCLUDE REGEX "/(choose|cuda_machine|moe_bench|gpu_cuda|gpu_none)\\.cpp$|/c_api/|/kernels/cpu/|/kernels/plan/")
foreach(FOURFOLD_PART stream_nvfp4 stream_mxfp4 stream_fp4 tile_mma_nvfp4 tile_mma_mxfp4 tile_fp4 tile_wgmma_nvfp4
    tile_wgmma_mxfp4 stream_bf16 stream_fp8 tile_mma_bf16 tile_mma_fp8 tile_wgmma_bf16 tile_wgmma_fp8)
  set(source ${CMAKE_BINARY_DIR}/rows/sim_${FOURFOLD_PART}.cpp)
  configure_file(${PROJECT_SOURCE_DIR}/src/kernels/launch/sim_part.cpp.in ${source} @ONLY)
  list(APPEND kernel_sources ${source})
endforeach()
set(step_parts step_dense step_delta step_attention step_sampling)
foreach(FOURFOLD_PART ${step_parts} step_hopper)
  set(source ${CMAKE_BINARY_DIR}/rows/sim_${FOURFOLD_PART}.cpp)
  configure_file(${PROJECT_SOURCE_DIR}/src/kernels/launch/sim_step_part.cpp.in ${source} @ONLY)
  list(APPEND kernel_sources ${source})
endforeach()
# Choosing rows needs none of them: `fourfold plan` links this alone.
add_library(fourfold_kernels_choose STATIC ${PROJECT_SOURCE_DIR}/src/kernels/moe_layer/choose.cpp)
target_link_libraries(fourfold_kernels_choose PUBLIC fourfold_options fourfold_base fourfold_plan)
# Every row's facts, hundreds of small functions that run once: optimising them would take longer than any other file.
add_library(fourfold_row_table STATIC ${PROJECT_SOURCE_DIR}/src/kernels/plan/row_table.cpp)
target_compile_options(fourfold_row_table PRIVATE -O0)
target_link_libraries(fourfold_row_table PUBLIC fourfold_options fourfold_plan)
target_sources(fourfold_kernels_choose PRIVATE ${PROJECT_SOURCE_DIR}/src/kernels/plan/refused_shapes.cpp)
add_library(fourfold_kernels_room STATIC ${kernel_sources})
target_link_libraries(fourfold_kernels_room PUBLIC fourfold_options fourfold_base fourfold_plan fourfold_sim
  fourfold_kernels_choose ${CMAKE_DL_LIBS})
fourfold_precompile(fourfold_kernels_room fourfold_base)

if(FOURFOLD_HAS_CUDA)
  set(shared_parts stream_nvfp4 stream_mxfp4 stream_fp4 tile_mma_nvfp4 tile_mma_mxfp4 tile_fp4
    stream_bf16 stream_fp8 tile_mma_bf16 tile_mma_fp8)
  set(parts_Hopper ${shared_parts} tile_wgmma_nvfp4 tile_wgmma_mxfp4 tile_wgmma_bf16 tile_wgmma_fp8)
  set(parts_Workstation ${shared_parts})
  set(step_parts_Hopper ${step_parts} step_all_reduce step_hopper)
  set(step_parts_Workstation ${step_parts} step_all_reduce)
  set(gencode_Hopper ${FOURFOLD_GENCODE_SM90})
  set(gencode_Workstation ${FOURFOLD_GENCODE_SM120})

  find_package(CUDAToolkit REQUIRED)
  add_library(fourfold_kernels_cuda STATIC
    ${PROJECT_SOURCE_DIR}/src/kernels/launch/cuda_machine.cpp
    ${PROJECT_SOURCE_DIR}/src/kernels/bench/moe_bench.cpp
    ${PROJECT_SOURCE_DIR}/src/kernels/bench/device_tools.cu)
  target_compile_options(fourfold_kernels_cuda PRIVATE
    $<$<COMPILE_LANGUAGE:CUDA>:${FOURFOLD_CUDA_FLAGS} ${FOURFOLD_GENCODE_SM90} ${FOURFOLD_GENCODE_SM120}>)
  target_link_libraries(fourfold_kernels_cuda PUBLIC fourfold_kernels_room CUDA::cudart_static)
  foreach(chip ${FOURFOLD_CHIPS})
    target_compile_definitions(fourfold_kernels_cuda PRIVATE FOURFOLD_CHIP_${chip}=1)
    set(sources)
    set(FOURFOLD_CHIP ${chip})
    foreach(FOURFOLD_PART ${parts_${chip}})
      set(source ${CMAKE_BINARY_DIR}/rows/${chip}_${FOURFOLD_PART}.cu)
      configure_file(${PROJECT_SOURCE_DIR}/src/kernels/launch/part.cu.in ${source} @ONLY)
      list(APPEND sources ${source})
    endforeach()
    foreach(FOURFOLD_PART ${step_parts_${chip}})
      set(source ${CMAKE_BINARY_DIR}/rows/${chip}_${FOURFOLD_PART}.cu)
      configure_file(${PROJECT_SOURCE_DIR}/src/kernels/launch/step_part.cu.in ${source} @ONLY)
      list(APPEND sources ${source})
    endforeach()
    set(source ${CMAKE_BINARY_DIR}/rows/${chip}_basic.cu)
    configure_file(${PROJECT_SOURCE_DIR}/src/kernels/launch/basic.cu.in ${source} @ONLY)
    list(APPEND sources ${source})
    add_library(fourfold_rows_${chip} STATIC ${sources})
    target_link_libraries(fourfold_rows_${chip} PRIVATE fourfold_options)
    target_compile_options(fourfold_rows_${chip} PRIVATE
      $<$<COMPILE_LANGUAGE:CUDA>:${FOURFOLD_CUDA_FLAGS} ${gencode_${chip}}>)
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
