# The machine code of the built rows against the plan, and the proof that the check finds what it looks for. Included when
# nvcc was found.
find_package(Python3 COMPONENTS Interpreter REQUIRED)
set(check ${PROJECT_SOURCE_DIR}/tools/check_cubins.py)
set(rows)
set(built)
set(counted)
foreach(chip Hopper Workstation)
  if(TARGET fourfold_rows_${chip})
    string(REGEX MATCHALL "code=sm_[0-9]+" codes "${FOURFOLD_GENCODE_${chip}}")
    list(TRANSFORM codes REPLACE "code=sm_" "")
    list(JOIN codes "," codes)
    list(APPEND rows fourfold_rows_${chip})
    list(APPEND built --chip ${chip}:${codes}=$<TARGET_FILE:fourfold_rows_${chip}>)
    if(codes MATCHES "90|120")
      list(APPEND counted --chip ${chip}=$<TARGET_FILE:fourfold_rows_${chip}>)
    endif()
  endif()
endforeach()
if(TARGET fourfold_rows_Hopper)
  list(APPEND built --code ${CMAKE_CURRENT_LIST_DIR}/one_user_code.txt)
endif()
add_test(NAME kernels.cubins_finds_faults
  COMMAND ${Python3_EXECUTABLE} ${CMAKE_CURRENT_LIST_DIR}/check_cubins_test.py ${FOURFOLD_NVCC} ${check}
    ${CMAKE_CURRENT_BINARY_DIR}/faulty_rows)
if(NOT rows)
  return()
endif()

add_executable(cubin_plan ${CMAKE_CURRENT_LIST_DIR}/cubin_plan.cpp)
target_link_libraries(cubin_plan PRIVATE fourfold_plan fourfold_all_rows)
target_compile_options(cubin_plan PRIVATE -O0)  # it prints constants
set(plan ${CMAKE_CURRENT_BINARY_DIR}/cubin_plan.txt)
add_custom_command(TARGET cubin_plan POST_BUILD COMMAND cubin_plan > ${plan} VERBATIM)
add_dependencies(cubin_plan ${rows})  # whoever builds the plan has what is held against it
add_test(NAME kernels.cubins COMMAND ${Python3_EXECUTABLE} ${check} --plan ${plan} ${built})

# The committed instruction counts are those of this compiler; another one's may differ.
get_filename_component(nvcc_folder ${FOURFOLD_NVCC} DIRECTORY)
find_program(FOURFOLD_NVDISASM nvdisasm HINTS ${nvcc_folder})
if(FOURFOLD_NVDISASM AND nvcc_version VERSION_EQUAL 13.0 AND counted)
  add_test(NAME kernels.instruction_counts
    COMMAND ${Python3_EXECUTABLE} ${PROJECT_SOURCE_DIR}/tools/count_instructions.py --plan ${plan} ${counted}
      --nvdisasm ${FOURFOLD_NVDISASM} --check ${PROJECT_SOURCE_DIR}/src/plan/instruction_counts.cpp)
endif()
