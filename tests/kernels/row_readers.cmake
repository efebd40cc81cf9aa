# For one_line_row.py, a part of ./dev test --long.
add_executable(row_readers EXCLUDE_FROM_ALL ${CMAKE_CURRENT_LIST_DIR}/row_readers.cpp)
target_link_libraries(row_readers PRIVATE fourfold_row_table fourfold_kernels_room)
