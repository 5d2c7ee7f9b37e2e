# Install rules and the package files that find_package(attnjit) reads.
include(CMakePackageConfigHelpers)

# The command installs itself (src/cli).
install(TARGETS attnjit_shared attnjit_static attnjit_emulator_static EXPORT attnjitTargets
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(DIRECTORY include/attnjit DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(EXPORT attnjitTargets NAMESPACE attnjit:: DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/attnjit)
configure_package_config_file(cmake/attnjitConfig.cmake.in attnjitConfig.cmake
  INSTALL_DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/attnjit)
write_basic_package_version_file(attnjitConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/attnjitConfig.cmake
              ${CMAKE_CURRENT_BINARY_DIR}/attnjitConfigVersion.cmake
  DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/attnjit)

# For builds that ask pkg-config. The prefix is the file's own place, so that the tree may be moved.
file(RELATIVE_PATH ATTNJIT_PC_PREFIX /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
string(REGEX REPLACE "/$" "" ATTNJIT_PC_PREFIX "${ATTNJIT_PC_PREFIX}")
configure_file(cmake/attnjit.pc.in attnjit.pc @ONLY)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/attnjit.pc
  DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
