# The machine code of the built rows against the plan, and the proof that the check finds what it looks for. Included when
# nvcc was found.
find_package(Python3 COMPONENTS Interpreter REQUIRED)
add_executable(cubin_plan ${CMAKE_CURRENT_LIST_DIR}/cubin_plan.cpp)
target_link_libraries(cubin_plan PRIVATE fourfold_plan fourfold_all_rows)
target_compile_options(cubin_plan PRIVATE -O0)  # it prints constants
set(plan ${CMAKE_CURRENT_BINARY_DIR}/cubin_plan.txt)
add_custom_command(TARGET cubin_plan POST_BUILD COMMAND cubin_plan > ${plan} VERBATIM)
set(check ${PROJECT_SOURCE_DIR}/tools/check_cubins.py)
set(built)
foreach(chip Hopper Workstation)
  if(TARGET fourfold_rows_${chip})
    string(REGEX MATCHALL "code=sm_[0-9]+" codes "${FOURFOLD_GENCODE_${chip}}")
    list(TRANSFORM codes REPLACE "code=sm_" "")
    list(JOIN codes "," codes)
    list(APPEND built --chip ${chip}:${codes}=$<TARGET_FILE:fourfold_rows_${chip}>)
  endif()
endforeach()
if(TARGET fourfold_rows_Hopper)
  list(APPEND built --code ${CMAKE_CURRENT_LIST_DIR}/one_user_code.txt)
endif()
add_test(NAME kernels.cubins COMMAND ${Python3_EXECUTABLE} ${check} --plan ${plan} ${built})
add_test(NAME kernels.cubins_finds_faults
  COMMAND ${Python3_EXECUTABLE} ${CMAKE_CURRENT_LIST_DIR}/check_cubins_test.py ${FOURFOLD_NVCC} ${check}
    ${CMAKE_CURRENT_BINARY_DIR}/faulty_rows)
