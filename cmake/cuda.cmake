# Finds nvcc 12.9 or newer (family-specific targets, compute_120f) and sets FOURFOLD_HAS_CUDA. Each launch file is
# compiled for its own chip alone, by explicit -gencode: -arch=sm_120f would also compile a base PTX image that has no
# FP4 instruction.
set(FOURFOLD_NVCC_MINIMUM 12.9)
set(FOURFOLD_HAS_CUDA OFF)
set(FOURFOLD_CHIPS "sm_90a;sm_120f;sm_121f" CACHE STRING
  "Machine code to compile: sm_90a (Hopper), sm_120f (workstation Blackwell; a DGX Spark runs it, too), sm_121f (a DGX Spark's own), or none")
# The options of each chip's rows; 12.0 and 12.1 have the same rows. `none` is for ./dev test: see test_chips there.
foreach(code ${FOURFOLD_CHIPS})
  if(code STREQUAL "none")
    if(NOT FOURFOLD_CHIPS STREQUAL "none")
      message(FATAL_ERROR "fourfold: FOURFOLD_CHIPS is ${FOURFOLD_CHIPS}; none stands alone")
    endif()
  elseif(code STREQUAL "sm_90a")
    list(APPEND FOURFOLD_GENCODE_Hopper -gencode=arch=compute_90a,code=sm_90a)
  elseif(code MATCHES "^sm_12[01]f$")
    list(APPEND FOURFOLD_GENCODE_Workstation -gencode=arch=compute_120f,code=${code})
  else()
    message(FATAL_ERROR "fourfold: FOURFOLD_CHIPS knows sm_90a, sm_120f, sm_121f and none, not '${code}'")
  endif()
endforeach()

if(NOT FOURFOLD_CUDA STREQUAL "off")
  find_program(FOURFOLD_NVCC nvcc HINTS ENV CUDA_HOME ENV CUDACXX PATHS /usr/local/cuda/bin)
  if(FOURFOLD_NVCC)
    execute_process(COMMAND ${FOURFOLD_NVCC} --version OUTPUT_VARIABLE nvcc_says)
    string(REGEX MATCH "release ([0-9]+\\.[0-9]+)" ignored "${nvcc_says}")
    set(nvcc_version ${CMAKE_MATCH_1})
    if(nvcc_version VERSION_LESS FOURFOLD_NVCC_MINIMUM)
      message(FATAL_ERROR "fourfold: ${FOURFOLD_NVCC} is version ${nvcc_version}; the CUDA kernels need "
        "${FOURFOLD_NVCC_MINIMUM} or newer. Install a newer toolkit, or build without CUDA: -DFOURFOLD_CUDA=off")
    endif()
    set(CMAKE_CUDA_COMPILER ${FOURFOLD_NVCC})
    set(CMAKE_CUDA_ARCHITECTURES OFF)
    if(CMAKE_CROSSCOMPILING)
      include(cmake/cross_cuda.cmake)
      fourfold_cross_cuda(CMAKE_CUDA_COMPILER ${FOURFOLD_NVCC} ${CMAKE_BINARY_DIR}/cuda)
      set(CMAKE_CUDA_HOST_COMPILER ${CMAKE_CXX_COMPILER})
      set(CMAKE_CUDA_FLAGS "${CMAKE_CUDA_FLAGS} ${FOURFOLD_CROSS_CUDA_FLAGS}")
      # Else CMake starts a program of the other machine, to ask for GPUs, and a shell takes it for a script. What it would have
      # learned from linking that program:
      set(CMAKE_CUDA_COMPILER_FORCED ON)
      add_link_options(-L${FOURFOLD_CUDART})
    endif()
    enable_language(CUDA)
    # CMake 3.25 does not know that nvcc speaks C++20.
    if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)
      set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")
      set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION "-std=c++20")
    endif()
    set(CMAKE_CUDA_STANDARD 20)
    set(CMAKE_CUDA_RUNTIME_LIBRARY Static)
    set(FOURFOLD_HAS_CUDA ON)
    list(JOIN FOURFOLD_CHIPS ", " code)
    if(code STREQUAL "none")
      message(STATUS "fourfold: no CUDA kernels (FOURFOLD_CHIPS=none), only what calls them: this build runs on no GPU")
    else()
      message(STATUS "fourfold: CUDA kernels for ${code} with nvcc ${nvcc_version}")
    endif()
  elseif(FOURFOLD_CUDA STREQUAL "on")
    message(FATAL_ERROR "fourfold: nvcc was not found; the CUDA kernels need ${FOURFOLD_NVCC_MINIMUM} or newer")
  else()
    message(STATUS "fourfold: no nvcc; building without CUDA kernels (simulator and CPU only)")
  endif()
endif()
# Spills and the like are a test (tools/check_cubins.py), not a warning: the emulated proof rows may. compress-mode=speed is
# LZ4, which that test can read. The host's half, tables of rows and the call that launches each, is not worth -O3: a
# tenth of what nvcc takes.
set(FOURFOLD_CUDA_FLAGS --expt-relaxed-constexpr -Xfatbin -compress-all --compress-mode=speed -Xcompiler=-O1)
# For compute-sanitizer's racecheck only: see kWarpArrivals in kernels/device/cuda/cta.h.
option(FOURFOLD_RACECHECK "Every lane arrives for itself where one speaks for its warp: slower, and racecheck can follow it" OFF)
if(FOURFOLD_RACECHECK)
  list(APPEND FOURFOLD_CUDA_FLAGS -DFOURFOLD_RACECHECK)
endif()
