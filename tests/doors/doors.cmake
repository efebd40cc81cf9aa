# The public doors: what an engineer sees who has the installed library and nothing else.
if(FOURFOLD_HAS_MODEL_FLOOR)
  fourfold_room_test(doors fourfold_kernels fourfold_engine_library)
  target_compile_definitions(test_doors PRIVATE FOURFOLD_HAS_ENGINE=1)
else()
  fourfold_room_test(doors fourfold_kernels)
endif()

function(fourfold_door name)
  add_test(NAME doors.${name} COMMAND ${CMAKE_COMMAND} ${ARGN} -P ${CMAKE_CURRENT_SOURCE_DIR}/doors/${name}.cmake)
  set_tests_properties(doors.${name} PROPERTIES TIMEOUT 600)
endfunction()

fourfold_door(header -DSOURCE=${PROJECT_SOURCE_DIR} -DCXX=${CMAKE_CXX_COMPILER} -DWORK=${CMAKE_BINARY_DIR}/doors/header)
find_program(FOURFOLD_NM NAMES nm llvm-nm)
find_program(FOURFOLD_READELF NAMES readelf llvm-readelf)
function(fourfold_symbols test library name header least)
  add_test(NAME doors.${test} COMMAND ${CMAKE_COMMAND} -DSOURCE=${PROJECT_SOURCE_DIR}
    -DLIBRARY=$<TARGET_FILE:${library}> -DNAME=${name} -DHEADER=${header} -DLEAST=${least} -DNM=${FOURFOLD_NM}
    -DREADELF=${FOURFOLD_READELF} -P ${CMAKE_CURRENT_SOURCE_DIR}/doors/symbols.cmake)
  set_tests_properties(doors.${test} PROPERTIES TIMEOUT 600)
endfunction()
fourfold_symbols(symbols fourfold_kernels libfourfold_kernels fourfold_kernels.h 20)
if(FOURFOLD_HAS_MODEL_FLOOR)
  fourfold_symbols(engine_symbols fourfold_engine_library libfourfold_engine fourfold.h 5)
endif()
# A library with a sanitizer inside needs its run-time library in the program; plain programs cannot load it.
if(NOT FOURFOLD_SANITIZE)
  find_package(Python3 COMPONENTS Interpreter)
  find_program(FOURFOLD_PKG_CONFIG NAMES pkg-config pkgconf)
  fourfold_door(outside -DSOURCE=${PROJECT_SOURCE_DIR} -DBUILD=${CMAKE_BINARY_DIR} -DGENERATOR=${CMAKE_GENERATOR}
    -DPYTHON=${Python3_EXECUTABLE} -DPKG_CONFIG=${FOURFOLD_PKG_CONFIG} -DWORK=${CMAKE_BINARY_DIR}/doors/outside)
endif()
