# find_package(ocelli) defines the library ocelli::ocelli.
get_filename_component(_ocelli_prefix "${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)
if(NOT TARGET ocelli::ocelli)
  add_library(ocelli::ocelli SHARED IMPORTED)
  set_target_properties(ocelli::ocelli PROPERTIES
    IMPORTED_LOCATION "${_ocelli_prefix}/lib/libocelli.so.@VERSION@"
    IMPORTED_SONAME "libocelli.so.@ABI@"
    INTERFACE_INCLUDE_DIRECTORIES "${_ocelli_prefix}/include")
endif()
unset(_ocelli_prefix)
