# Installs the libraries, their public headers, the command, and what find_package(fusor CONFIG) and pkg-config need.
# Everything names places relative to itself: the installed folder can be moved.
include(CMakePackageConfigHelpers)

set(fusor_config_dir ${CMAKE_INSTALL_LIBDIR}/cmake/fusor)
set(fusor_pkgconfig_dir ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

install(TARGETS fusor fusor_static EXPORT fusorTargets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(EXPORT fusorTargets NAMESPACE fusor:: DESTINATION ${fusor_config_dir})
if(TARGET fusor_command)
  install(TARGETS fusor_command RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()

install(DIRECTORY ${PROJECT_BINARY_DIR}/include/ DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})

configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/fusorConfig.cmake.in ${PROJECT_BINARY_DIR}/fusorConfig.cmake
  INSTALL_DESTINATION ${fusor_config_dir})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/fusorConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/fusorConfig.cmake ${PROJECT_BINARY_DIR}/fusorConfigVersion.cmake
  DESTINATION ${fusor_config_dir})

file(RELATIVE_PATH fusor_pc_to_prefix /${fusor_pkgconfig_dir} /)
string(REGEX REPLACE "/$" "" fusor_pc_to_prefix ${fusor_pc_to_prefix})
configure_file(${PROJECT_SOURCE_DIR}/cmake/fusor.pc.in ${PROJECT_BINARY_DIR}/fusor.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/fusor.pc DESTINATION ${fusor_pkgconfig_dir})
