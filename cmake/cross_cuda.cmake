# nvcc for another machine than this one, which the toolkit's programs can do and its folders are not made for: nvcc asks the
# host compiler what machine that is, and looks for headers and libraries in targets/<machine>. So BUILD/cuda is a toolkit of
# symbolic links: the same programs, the same headers (they are the same for every machine), and the other machine's runtime.
set(FOURFOLD_CUDART "" CACHE PATH
  "Folder with libcudart_static.a and libcudadevrt.a of the machine that is built for (PyPI: nvidia-cuda-runtime)")

# fourfold_cross_cuda(VARIABLE NVCC PLACE): makes it of the toolkit of NVCC, and sets the variable to its nvcc.
function(fourfold_cross_cuda variable nvcc place)
  foreach(library libcudart_static.a libcudadevrt.a)
    if(NOT EXISTS ${FOURFOLD_CUDART}/${library})
      message(FATAL_ERROR "fourfold: the CUDA runtime for ${CMAKE_SYSTEM_PROCESSOR} is needed: -DFOURFOLD_CUDART=DIR names "
        "the folder with its ${library} ('./dev package wheel --for ...' fetches it from PyPI), and -DFOURFOLD_CUDA=off "
        "builds without CUDA")
    endif()
  endforeach()
  file(REAL_PATH ${nvcc} real)
  cmake_path(GET real PARENT_PATH bin)
  cmake_path(GET bin PARENT_PATH toolkit)
  file(REAL_PATH ${toolkit}/include headers)
  file(REMOVE_RECURSE ${place})
  if(CMAKE_SYSTEM_PROCESSOR STREQUAL "x86_64")
    set(targets x86_64-linux)
  else()
    set(targets sbsa-linux aarch64-linux)  # nvcc and CMake have names of their own
  endif()
  file(MAKE_DIRECTORY ${place}/bin)
  file(GLOB programs ${bin}/*)
  foreach(program ${programs})
    cmake_path(GET program FILENAME name)
    file(CREATE_LINK ${program} ${place}/bin/${name} SYMBOLIC)
  endforeach()
  file(CREATE_LINK ${toolkit}/nvvm ${place}/nvvm SYMBOLIC)
  foreach(target ${targets})
    file(MAKE_DIRECTORY ${place}/targets/${target})
    file(CREATE_LINK ${headers} ${place}/targets/${target}/include SYMBOLIC)
    file(CREATE_LINK ${FOURFOLD_CUDART} ${place}/targets/${target}/lib SYMBOLIC)
  endforeach()
  set(${variable} ${place}/bin/nvcc PARENT_SCOPE)
endfunction()

# What an Arm machine's nvcc must be told about x86-64: toolchains/nvcc_x86_64.h. (g++'s __float80 is named in <compare> where
# the macro says that there is one.)
set(FOURFOLD_CROSS_CUDA_FLAGS "")
if(CMAKE_SYSTEM_PROCESSOR STREQUAL "x86_64" AND CMAKE_HOST_SYSTEM_PROCESSOR STREQUAL "aarch64")
  set(FOURFOLD_CROSS_CUDA_FLAGS
    "-U__SIZEOF_FLOAT80__ -Xcudafe --signed_chars -include ${PROJECT_SOURCE_DIR}/cmake/toolchains/nvcc_x86_64.h")
endif()
